// Moves one part of a blob between this host and the object store. A download that was cut goes on where it ended, and
// a part gets its name only after its digest was checked.
import { createHash, type Hash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { type FileHandle, open, rename, rm, stat } from 'node:fs/promises';
import { request as httpRequest, type IncomingMessage, type RequestOptions } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { zstdCompress, zstdDecompress } from 'node:zlib';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type DownloadPart, PART_BYTES, type StoredPart } from '@sandbar/contract/host-blobs.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { BLOCK_BYTES } from '../storage/sparse-file.ts';

/** How often one call asks the store for a part. */
const TRIES = 4;
/** Pause before the second try, in milliseconds. Later ones are longer. */
const PAUSE_MS = 200;
/** How long the store may take for one request, in milliseconds. A part is 16 MiB at most. */
const REQUEST_MS = 60_000;

const compress = promisify(zstdCompress);
const decompress = promisify(zstdDecompress);

/** Reads part `index` of a file, compresses it and puts it at `url`. Throws `host_unavailable` when that fails. */
export async function uploadPart(path: string, index: number, url: string): Promise<StoredPart> {
  const raw = await readPart(path, index);
  const stored = await compress(raw);
  const headers = { 'content-length': String(stored.length), 'content-type': 'application/octet-stream' };
  await ask('upload', async (signal) => {
    const answer = await send(url, { method: 'PUT', headers, signal }, stored);
    refuse(answer, [200, 201, 204]);
    answer.resume();
  });
  const hash = createHash('sha256');
  await updateInTurns(hash, stored);
  return { sha256: hash.digest('hex'), bytes: stored.length };
}

/**
 * Fetches a stored part to the file `path`. An earlier call may have left the beginning in `<path>.loading`. Throws
 * `host_unavailable` when the store does not answer, or when the part has another digest, and `fleet_capacity` on a
 * full disk; nothing is at `path` then.
 */
export async function downloadPart(path: string, { url, sha256, bytes }: DownloadPart): Promise<void> {
  const loading = `${path}.loading`;
  await ask('download', async (signal) => {
    await fetchRest(loading, url, bytes, signal);
    if ((await hashOf(loading)) === sha256) return;
    await rm(loading, { force: true });
    throw new Error('the digest of a part differs from what was stored');
  });
  await rename(loading, path);
}

/**
 * Returns the content of a stored part. `rawBytes`: the size that it must have. Throws an Error when the part is not
 * what was compressed.
 */
export async function unpackPart(stored: Buffer, rawBytes: number): Promise<Buffer> {
  const raw = await decompress(stored, { maxOutputLength: PART_BYTES });
  if (raw.length !== rawBytes) throw new Error(`a part has ${raw.length} bytes instead of ${rawBytes}`);
  return raw;
}

/**
 * Adds a large buffer to a hash. Other work of the agent gets its turn after every mebibyte, so that it does not wait
 * for the whole buffer.
 */
export async function updateInTurns(hash: Hash, bytes: Buffer): Promise<void> {
  for (let from = 0; from < bytes.length; from += BLOCK_BYTES) {
    hash.update(bytes.subarray(from, from + BLOCK_BYTES));
    await new Promise(setImmediate);
  }
}

async function readPart(path: string, index: number): Promise<Buffer> {
  const file = await open(path, 'r');
  try {
    const { size } = await file.stat();
    const offset = index * PART_BYTES;
    const wanted = Math.min(PART_BYTES, size - offset);
    if (wanted <= 0) throw new ServiceError('validation_error', `the file has no part ${index}`);
    const raw = Buffer.alloc(wanted);
    for (let done = 0; done < wanted; ) {
      const { bytesRead } = await file.read(raw, done, wanted - done, offset + done);
      if (bytesRead === 0) throw new Error(`the file ends at ${offset + done} bytes`);
      done += bytesRead;
    }
    return raw;
  } finally {
    await file.close();
  }
}

/** Appends to `loading` what is missing of the object. */
async function fetchRest(loading: string, url: string, bytes: number, signal: AbortSignal): Promise<void> {
  const have = await stat(loading).then(
    ({ size }) => size,
    () => 0,
  );
  if (have === bytes) return;
  const from = have < bytes ? have : 0;
  const headers: Record<string, string> = from === 0 ? {} : { range: `bytes=${from}-` };
  const answer = await send(url, { headers, signal });
  refuse(answer, [200, 206]);
  // A store that ignores the range sends the whole object.
  const start = answer.statusCode === 206 ? from : 0;
  // Every piece is written before the next one is read, so that a cut loses as little as possible.
  const file = await open(loading, start === 0 ? 'w' : 'a', 0o600);
  let length = start;
  try {
    for await (const piece of answer as AsyncIterable<Buffer>) {
      length += piece.length;
      if (length > bytes) throw new Error(`an object is larger than the ${bytes} bytes that were stored`);
      await writeAll(file, piece);
    }
  } finally {
    await file.close();
  }
  if (length !== bytes) throw new Error(`an object has ${length} bytes instead of ${bytes}`);
}

async function writeAll(file: FileHandle, bytes: Uint8Array): Promise<void> {
  for (let done = 0; done < bytes.length; ) done += (await file.write(bytes, done)).bytesWritten;
}

async function hashOf(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk);
  return hash.digest('hex');
}

/**
 * Sends a request and returns the answer, whose body has not been read. Follows no redirect. This is Node's own client
 * and not `fetch`: when a connection ends while nobody reads the body, `fetch` of Node 24 fails in a way that ends the
 * process.
 */
function send(url: string, options: RequestOptions, body?: Buffer): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    const request = (url.startsWith('https:') ? httpsRequest : httpRequest)(url, options, resolve);
    request.on('error', reject);
    request.end(body);
  });
}

function refuse(answer: IncomingMessage, accepted: readonly number[]): void {
  if (accepted.includes(answer.statusCode ?? 0)) return;
  answer.destroy();
  throw new Error(`the object store answered with status ${answer.statusCode}`);
}

/** Makes a request a few times. The errors never quote the address, because whoever has it can use it. */
async function ask(what: string, request: (signal: AbortSignal) => Promise<void>): Promise<void> {
  for (let tries = 1; ; tries++) {
    try {
      return await request(AbortSignal.timeout(REQUEST_MS));
    } catch (error) {
      if (isDiskFull(error)) throw diskFull(error);
      if (tries === TRIES) {
        // The message of a failed connection has the address of the store, which is no client's business.
        const { code, message } = error as NodeJS.ErrnoException;
        const why = code ?? message;
        throw new ServiceError('host_unavailable', `the ${what} of a part failed: ${why}`, { retryAfterSec: 5 });
      }
      await delay(PAUSE_MS * tries);
    }
  }
}
