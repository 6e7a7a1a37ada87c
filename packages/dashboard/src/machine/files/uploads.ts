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
export type UploadState = 'waiting' | 'sending' | 'exists' | 'done' | 'failed' | 'canceled';
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

let uploads: readonly Upload[] = [];
let count = 0;
const listeners = new Listeners();
const cancellations = new Map<number, AbortController>();

export const listUploads = (): readonly Upload[] => uploads;

export const onUploadsChange = listeners.subscribe;

export function addUploads(machineId: string, folder: EncodedPath, chosen: readonly ChosenFile[]): void {
  const added = chosen.map(({ name, file }): Upload => {
    const path = resolvePath(folder, name);
    count += 1;
    return {
      id: count,
      machineId,
      path,
      name,
      file,
      state: 'waiting',
      sentBytes: 0,
      mayReplace: false,
      problem: undefined,
    };
  });
  show([...uploads, ...added]);
  startWaiting();
}

/** Stops an upload, or takes it off the queue. The machine keeps nothing of it. */
export function cancelUpload(id: number): void {
  cancellations.get(id)?.abort();
  change(id, { state: 'canceled' });
  startWaiting();
}

/** Sends again, and replaces what is at the path. */
export function replaceExisting(id: number): void {
  change(id, { state: 'waiting', mayReplace: true, problem: undefined });
  startWaiting();
}

export function retryUpload(id: number): void {
  change(id, { state: 'waiting', problem: undefined });
  startWaiting();
}

const ENDED: readonly UploadState[] = ['done', 'failed', 'canceled'];
export const isEnded = ({ state }: Upload): boolean => ENDED.includes(state);

export const dismissEnded = (): void => show(uploads.filter((upload) => !isEnded(upload)));

function startWaiting(): void {
  const free = AT_ONCE - uploads.filter(({ state }) => state === 'sending').length;
  for (const upload of uploads.filter(({ state }) => state === 'waiting').slice(0, free)) void run(upload);
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
  show(uploads.map((upload) => (upload.id === id && upload.state !== 'canceled' ? { ...upload, ...changes } : upload)));
}

function show(next: readonly Upload[]): void {
  uploads = next;
  const isBusy = uploads.some(({ state }) => state === 'sending' || state === 'waiting');
  if (isBusy) addEventListener('beforeunload', askBeforeLeaving);
  else removeEventListener('beforeunload', askBeforeLeaving);
  listeners.call();
}

const askBeforeLeaving = (event: BeforeUnloadEvent): void => event.preventDefault();
