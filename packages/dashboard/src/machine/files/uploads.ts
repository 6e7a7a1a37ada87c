// The uploads of this page. They go on while the person looks at another tab or folder, so they live outside of React.
import { ApiProblem } from '../../api/client.ts';
import { Listeners } from '../../ui/listeners.ts';
import type { ChosenFile } from './dropped-files.ts';
import { type EncodedPath, resolvePath } from './path.ts';
import { describeProblem } from './problem.ts';
import { refreshFilesSoon } from './refresh.ts';
import { exists, fileUrl } from './requests.ts';
import { sendFile } from './send-file.ts';

/** `exists`: something is at the path, and the person decides whether to replace it. */
type UploadState = 'waiting' | 'sending' | 'exists' | 'done' | 'failed' | 'canceled';
export type Upload = {
  id: number;
  machineId: string;
  path: EncodedPath;
  name: string;
  file: File;
  state: UploadState;
  sentBytes: number;
  mayReplace: boolean;
  problem: string | undefined;
};

const AT_ONCE = 2;

/** How often the page shows the progress. A drop may contain thousands of files, and each change copies the list. */
const SHOW_MS = 100;

/** All uploads by id, oldest first, and the copy of them that the page shows. */
const uploads = new Map<number, Upload>();
let shown: readonly Upload[] = [];
let isShowPlanned = false;
let count = 0;
const waiting = new Set<number>();
const listeners = new Listeners();
/** Those of the uploads that are under way. */
const cancellations = new Map<number, AbortController>();

export const listUploads = (): readonly Upload[] => shown;

export const onUploadsChange = listeners.subscribe;

export function addUploads(machineId: string, folder: EncodedPath, chosen: readonly ChosenFile[]): void {
  for (const { name, file } of chosen) {
    const path = resolvePath(folder, name);
    count += 1;
    const rest = { state: 'waiting', sentBytes: 0, mayReplace: false, problem: undefined } as const;
    uploads.set(count, { id: count, machineId, path, name, file, ...rest });
    waiting.add(count);
  }
  showSoon();
  startWaiting();
}

/** Stops an upload, or takes it off the queue. The machine keeps nothing of it. */
export function cancelUpload(id: number): void {
  const upload = uploads.get(id);
  if (!upload || isEnded(upload)) return;
  cancellations.get(id)?.abort();
  waiting.delete(id);
  change(id, { state: 'canceled' });
  startWaiting();
}

/** Sends again, and replaces what is at the path. */
export function replaceExisting(id: number): void {
  if (uploads.get(id)?.state === 'exists') sendAgain(id, { mayReplace: true });
}

export function retryUpload(id: number): void {
  if (uploads.get(id)?.state === 'failed') sendAgain(id, {});
}

function sendAgain(id: number, changes: Partial<Upload>): void {
  change(id, { ...changes, state: 'waiting', problem: undefined });
  waiting.add(id);
  startWaiting();
}

const ENDED: readonly UploadState[] = ['done', 'failed', 'canceled'];
export const isEnded = ({ state }: Upload): boolean => ENDED.includes(state);

export function dismissEnded(machineId: string): void {
  for (const [id, upload] of uploads) if (upload.machineId === machineId && isEnded(upload)) uploads.delete(id);
  showSoon();
}

function startWaiting(): void {
  for (const id of waiting) {
    if (cancellations.size >= AT_ONCE) break;
    waiting.delete(id);
    const upload = uploads.get(id);
    if (upload) void run(upload);
  }
  if (cancellations.size > 0) addEventListener('beforeunload', askBeforeLeaving);
  else removeEventListener('beforeunload', askBeforeLeaving);
}

async function run({ id, machineId, path, file, mayReplace }: Upload): Promise<void> {
  const cancellation = new AbortController();
  cancellations.set(id, cancellation);
  change(id, { state: 'sending', sentBytes: 0 });
  const options = {
    isExclusive: !mayReplace,
    signal: cancellation.signal,
    onProgress: (sentBytes: number) => change(id, { sentBytes }),
  };
  try {
    // Check first, because the upload itself would be refused only after the browser has sent much of the file.
    if (!mayReplace && (await exists(machineId, path))) change(id, { state: 'exists' });
    else {
      await sendFile(fileUrl(machineId, 'content', path), file, options);
      change(id, { state: 'done', sentBytes: file.size });
    }
  } catch (error) {
    if (!cancellation.signal.aborted) change(id, stateAfter(error, mayReplace));
  } finally {
    cancellations.delete(id);
    refreshFilesSoon(machineId);
    startWaiting();
  }
}

function stateAfter(error: unknown, mayReplace: boolean): Partial<Upload> {
  const problem = describeProblem(error instanceof Error ? error : new Error(String(error)));
  const isTaken = error instanceof ApiProblem && error.status === 409 && !mayReplace && /exist/.test(error.message);
  return isTaken ? { state: 'exists', problem } : { state: 'failed', problem };
}

/** Changes an upload unless it was canceled meanwhile. */
function change(id: number, changes: Partial<Upload>): void {
  const upload = uploads.get(id);
  if (!upload || upload.state === 'canceled') return;
  uploads.set(id, { ...upload, ...changes });
  showSoon();
}

function showSoon(): void {
  if (isShowPlanned) return;
  isShowPlanned = true;
  setTimeout(() => {
    isShowPlanned = false;
    shown = [...uploads.values()];
    listeners.call();
  }, SHOW_MS);
}

const askBeforeLeaving = (event: BeforeUnloadEvent): void => event.preventDefault();
