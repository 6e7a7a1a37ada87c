// A part of a job's output as text, and a sentence that tells the agent how to read the rest.
import type { ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import { fromBase64, toText } from '@sandbar/sdk/bytes.ts';
import { completeLength, continuationBytes } from './text-part.ts';

export type OutputPart = {
  text: string;
  /** The position of the first byte of `text` in the stream. */
  offset: number;
  /** The position from which to read the rest. Null when the job has ended and nothing is left to read. */
  nextOffset: number | null;
  /** How many bytes the stream has so far. */
  totalBytes: number;
};

/** The output part of a stream to which an ended job has written nothing. */
export const NO_OUTPUT: OutputPart = { text: '', offset: 0, nextOffset: null, totalBytes: 0 };

/**
 * Returns at most the first `maxBytes` bytes of a page as text. The text begins and ends with a complete character. Bytes
 * that are not UTF-8 become U+FFFD.
 */
export function toOutputPart(page: ExecOutput, maxBytes: number): OutputPart {
  const all = fromBase64(page.data);
  const bytes = all.subarray(0, maxBytes);
  const isEnd = page.eof && bytes.length === all.length;
  const start = page.offset === 0 ? 0 : continuationBytes(bytes);
  const end = isEnd ? bytes.length : Math.max(start, completeLength(bytes));
  return {
    text: toText(bytes.subarray(start, end)),
    offset: page.offset + start,
    nextOffset: isEnd ? null : page.offset + end,
    totalBytes: page.total_bytes,
  };
}

/** Says that output is missing after this part, and how to read it. Empty when nothing is missing. */
export function readOnHint(
  { nextOffset, totalBytes }: OutputPart,
  job: { machineId: string; jobId: string; stream: OutputStream },
): string {
  if (nextOffset === null) return '';
  const where = `machine_id ${job.machineId}, job_id ${job.jobId}, stream ${job.stream}, offset ${nextOffset}`;
  return `[${job.stream} is cut at byte ${nextOffset} of ${totalBytes}. Read on with exec_output: ${where}.]`;
}
