// Reads pages of a job's output from the host. The JSON text of a page is assembled by hand, since base64 needs no
// escaping and JSON.stringify would be slow on megabytes.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import type { App } from '../app.ts';
import type { OutputPage, OutputQuery } from '../hosts/client.ts';
import { expireOutputs } from './settle.ts';
import { type FoundExec, findExec } from './store.ts';

export type OutputId = { accountId: string; machineId: string; execId: string };
export type OutputTarget = FoundExec & { stream: OutputStream };

/**
 * Returns the job whose output is read. Throws `not_found`, also when the machine is destroyed, because its output is
 * deleted with it. Throws `output_expired`.
 */
export async function findOutput(app: App, id: OutputId, stream: OutputStream): Promise<OutputTarget> {
  const found = await findExec(app, id.accountId, id.machineId, id.execId);
  if (found.machineState === 'destroyed') {
    throw new ServiceError('not_found', 'The output went with its machine, which is destroyed.');
  }
  if (found.exec.output_expired) throw outputExpired();
  return { ...found, stream };
}

/**
 * Reads a page. If there are no new bytes yet, waits up to `waitMs` milliseconds for some. Throws `host_unavailable`,
 * `not_found`, and `output_expired`, also when the output was dropped while this waited.
 */
export async function readPageOfOutput(
  app: App,
  target: OutputTarget,
  query: Omit<OutputQuery, 'stream'>,
  signal: AbortSignal,
): Promise<OutputPage> {
  const { exec, hostId, stream } = target;
  const client = app.hosts.client(hostId);
  const page = await client.readOutput(exec.machine_id, exec.id, { stream, ...query }, signal).catch(async (error) => {
    if (isExpired(error)) await expireOutputs(app.db, exec.machine_id, [exec.id]);
    throw isExpired(error) ? outputExpired() : error;
  });
  if (page) return page;
  // The host does not know the job. If the job was lost and nothing was written before, its complete output is empty.
  const hasOutput = exec.stdout_bytes + exec.stderr_bytes > 0;
  if (exec.status === 'lost' && !hasOutput && query.offset === 0) {
    return { bytes: Buffer.alloc(0), nextOffset: 0, totalBytes: 0, eof: true };
  }
  // If the host has the machine but not the ended job, it forgot the job because too many jobs ended after it.
  if (exec.status !== 'running' && (await client.getMachine(exec.machine_id))) {
    await expireOutputs(app.db, exec.machine_id, [exec.id]);
    throw outputExpired();
  }
  throw new ServiceError('not_found', 'The output of this job is not there any more.');
}

/**
 * Throws `output_expired` when the output of an ended job was dropped. An event stream calls this before it sends its
 * status line, because afterwards it cannot report an error. Other errors show up when the stream reads.
 */
export async function refuseExpiredOutput(app: App, target: OutputTarget, signal: AbortSignal): Promise<void> {
  if (target.exec.status === 'running') return;
  await readPageOfOutput(app, target, { offset: 0, limit: 1, waitMs: 0 }, signal).catch((error: unknown) => {
    if (isExpired(error)) throw error;
  });
}

export const isExpired = (error: unknown): boolean => error instanceof ServiceError && error.code === 'output_expired';

const outputExpired = (): ServiceError =>
  new ServiceError(
    'output_expired',
    'The output of this job was dropped, because a machine keeps a limited amount of it and newer jobs needed the room.',
  );

/** Returns true if the error means that the output cannot be read now. Other errors are bugs. */
export const isGone = (error: unknown): boolean =>
  error instanceof ServiceError && (error.code === 'host_unavailable' || error.code === 'not_found');

/** Converts a page into the JSON object that clients get. */
export const toPage = ({ exec, stream }: OutputTarget, offset: number, page: OutputPage): ExecOutput => ({
  exec_id: exec.id,
  stream,
  offset,
  data: page.bytes.toString('base64'),
  next_offset: page.nextOffset,
  total_bytes: page.totalBytes,
  eof: page.eof,
});

/**
 * Bytes to encode in one step. A multiple of 3, so that the base64 pieces join without padding, and small, so that V8
 * frees the short-lived strings cheaply.
 */
const BASE64_STEP_BYTES = 48 * 1024;

/**
 * Returns the JSON text of the page's `ExecOutput` as one buffer. It uses no large strings, because V8 frees strings of
 * several megabytes only at a full garbage collection. `around`: ASCII text to put before and after the JSON.
 */
export function writePage(
  target: OutputTarget,
  offset: number,
  page: OutputPage,
  around: { before: string; after: string } = { before: '', after: '' },
): Buffer {
  const { bytes } = page;
  const head = `${around.before}{"exec_id":"${target.exec.id}","stream":"${target.stream}","offset":${offset},"data":"`;
  const tail = `","next_offset":${page.nextOffset},"total_bytes":${page.totalBytes},"eof":${page.eof}}${around.after}`;
  const text = Buffer.allocUnsafe(head.length + Math.ceil(bytes.length / 3) * 4 + tail.length);
  let at = text.write(head, 'latin1');
  for (let from = 0; from < bytes.length; from += BASE64_STEP_BYTES) {
    at += text.write(bytes.toString('base64', from, from + BASE64_STEP_BYTES), at, 'latin1');
  }
  text.write(tail, at, 'latin1');
  return text;
}
