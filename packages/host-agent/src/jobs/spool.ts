// Stores the output of one job on the host's disk, in one file per stream, at absolute offsets. The files survive a
// crash of the agent: the next agent asks the guest for the output that follows the file's end, so no byte is written
// twice.
import { constants, readFileSync, writeFileSync } from 'node:fs';
import { type FileHandle, open, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { OUTPUT_STREAMS, type OutputStream } from '@sandbar/contract/exec.ts';
import type { StreamOffsets } from '../guest/guest.ts';
import { GuestProtocolError } from '../guest/guest-protocol-error.ts';
import { isDiskFull } from '../storage/overlay.ts';

/**
 * Pause in ms before a write to a full disk is retried. Meanwhile the agent reads nothing from the guest, so the guest
 * keeps the output.
 */
const DISK_FULL_RETRY_MS = 1000;
/** The most bytes that are written synchronously. */
const FIRST_BYTES = 4096;

export class JobSpool {
  readonly sizes: StreamOffsets = { stdout: 0, stderr: 0 };
  readonly #dir: string;
  readonly #limitBytes: number;
  readonly #files = new Map<OutputStream, Promise<FileHandle>>();
  #closed = false;

  private constructor(dir: string, limitBytes: number) {
    this.#dir = dir;
    this.#limitBytes = limitBytes;
  }

  /** Returns the spool of a new job, in an empty directory. `limitBytes` is the maximum size of each stream. */
  static create(dir: string, limitBytes: number): JobSpool {
    return new JobSpool(dir, limitBytes);
  }

  /**
   * Opens the spool of a job whose directory may have output already. `limitBytes` is the maximum size of each stream.
   */
  static async open(dir: string, limitBytes: number): Promise<JobSpool> {
    const spool = JobSpool.create(dir, limitBytes);
    for (const stream of OUTPUT_STREAMS) spool.sizes[stream] = await spoolSize(dir, stream);
    return spool;
  }

  /**
   * Appends bytes, and waits while the disk is full. Throws {@link GuestProtocolError} when `offset` is not the end of
   * the stored output, or when the bytes exceed the limit. Allows only one write at a time for each stream.
   */
  async write(stream: OutputStream, offset: number, bytes: Buffer): Promise<void> {
    const end = offset + bytes.length;
    if (offset !== this.sizes[stream])
      throw new GuestProtocolError(`output of ${stream} goes on at byte ${offset}, not at ${this.sizes[stream]}`);
    if (end > this.#limitBytes)
      throw new GuestProtocolError(`output of ${stream} passes the limit of ${this.#limitBytes} bytes`);
    if (offset === 0 && this.#writeFirst(stream, bytes)) {
      this.sizes[stream] = end;
      return;
    }
    const file = await this.#file(stream);
    for (let done = 0; done < bytes.length; ) {
      done += await writeWhenThereIsRoom(file, bytes.subarray(done), offset + done);
    }
    this.sizes[stream] = end;
  }

  /**
   * Writes the first bytes of a stream synchronously, if they are few. Most commands print no more than that, and an
   * asynchronous write would wait twice for a thread of Node's pool. Returns false if it has written nothing.
   */
  #writeFirst(stream: OutputStream, bytes: Buffer): boolean {
    if (this.#closed || this.#files.has(stream) || bytes.length > FIRST_BYTES) return false;
    try {
      writeFileSync(join(this.#dir, stream), bytes, { mode: 0o600 });
      return true;
    } catch (error) {
      if (isDiskFull(error)) return false;
      throw error;
    }
  }

  /** Closes the files. Later writes fail; the output stays on the disk. */
  async close(): Promise<void> {
    this.#closed = true;
    await Promise.all([...this.#files.values()].map(async (file) => (await file).close()));
    this.#files.clear();
  }

  /**
   * Opens the stream's file, and creates it at the first byte, because most jobs write to only one of their streams.
   */
  #file(stream: OutputStream): Promise<FileHandle> {
    if (this.#closed) return Promise.reject(new Error('the spool is closed'));
    const path = join(this.#dir, stream);
    const file = this.#files.get(stream) ?? openWhenThereIsRoom(path);
    this.#files.set(stream, file);
    return file;
  }
}

async function openWhenThereIsRoom(path: string): Promise<FileHandle> {
  for (;;) {
    try {
      return await open(path, constants.O_RDWR | constants.O_CREAT, 0o600);
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      await delay(DISK_FULL_RETRY_MS);
    }
  }
}

async function writeWhenThereIsRoom(file: FileHandle, bytes: Buffer, offset: number): Promise<number> {
  for (;;) {
    try {
      return (await file.write(bytes, 0, bytes.length, offset)).bytesWritten;
    } catch (error) {
      if (!isDiskFull(error)) throw error;
      await delay(DISK_FULL_RETRY_MS);
    }
  }
}

/** The size of the stream's file in bytes; 0 when it does not exist. */
export async function spoolSize(dir: string, stream: OutputStream): Promise<number> {
  return stat(join(dir, stream)).then(
    (stats) => stats.size,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return 0;
      throw error;
    },
  );
}

/**
 * Reads a stream of a job that has just ended and has little output. Reads it synchronously: its few bytes are in memory
 * still, and the event loop would wait longer for the three calls of an asynchronous read.
 */
export function readSmallSpool(dir: string, stream: OutputStream): Buffer {
  return readFileSync(join(dir, stream));
}

/** Reads up to `limit` bytes of a stream from `offset` on, never past `end`. */
export async function readSpool(
  dir: string,
  stream: OutputStream,
  offset: number,
  limit: number,
  end: number,
): Promise<Buffer> {
  const wanted = Math.max(0, Math.min(limit, end - offset));
  if (wanted === 0) return Buffer.alloc(0);
  const file = await open(join(dir, stream), 'r');
  try {
    const { bytesRead, buffer } = await file.read(Buffer.allocUnsafe(wanted), 0, wanted, offset);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}
