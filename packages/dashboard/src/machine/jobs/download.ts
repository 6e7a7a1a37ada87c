// Saves a whole stream of a job as a file, byte for byte. The API has no route for the raw bytes, so the pages are read
// one after the other.
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import { withinRateLimit } from '../../machines/rate-limit.ts';
import { saveFile } from '../../ui/save-file.ts';
import type { JobId, StreamName } from './job-queries.ts';
import { decodeBase64, readOutput } from './output-page.ts';

/** `onProgress` gets the share that was read, from 0 to 1. For a running job the file ends at the newest byte. */
export async function downloadOutput(
  id: JobId,
  stream: StreamName,
  signal: AbortSignal,
  onProgress: (share: number) => void,
): Promise<void> {
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let offset = 0;
  let total = 1;
  while (offset < total) {
    const query = { stream, offset, limit: EXEC_BOUNDS.pageBytesMax };
    const page = await withinRateLimit(() => readOutput(id, query, signal));
    if (page.next_offset === offset) break;
    parts.push(decodeBase64(page.data));
    offset = page.next_offset;
    total = page.total_bytes;
    onProgress(offset / total);
  }
  saveFile(new Blob(parts, { type: 'application/octet-stream' }), `job-${id.execId}-${stream}.log`);
}
