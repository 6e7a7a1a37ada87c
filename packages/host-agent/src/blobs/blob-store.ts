// Keeps files that come from the object store, named by the SHA-256 of their content. The parts of a blob arrive one by
// one and stay on disk, so a transfer goes on after a crash of any side:
//
//   <sha256>.parts/<index>.loading ──digest of the part──▶ <sha256>.parts/<index>
//   all parts ──▶ <sha256>.partial ──digest of the whole──▶ <sha256>
import { createHash } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, renameSync, rmSync, statSync } from 'node:fs';
import { type FileHandle, mkdir, open, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { type BlobProgress, type DownloadPart, PART_BYTES, partCount } from '@sandbar/contract/host-blobs.ts';
import { SHA256_PATTERN } from '@sandbar/contract/patterns.ts';
import type { DiskRoom } from '../storage/disk-reserve.ts';
import { syncPath } from '../storage/durable.ts';
import { diskFull, isDiskFull } from '../storage/overlay.ts';
import { writeUsed } from '../storage/sparse-file.ts';
import { downloadPart, unpackPart, updateInTurns } from './part-transfer.ts';

const PARTS = '.parts';
const PARTIAL = '.partial';
const DIGEST = new RegExp(SHA256_PATTERN);

export class BlobStore {
  readonly #dir: string;
  readonly #room: Pick<DiskRoom, 'refuseWhenShort'>;
  /** Work that is under way, by the file that it makes. Calls for the same file share it. */
  readonly #working = new Map<string, Promise<void>>();

  constructor(blobsDir: string, room: Pick<DiskRoom, 'refuseWhenShort'>) {
    this.#dir = blobsDir;
    this.#room = room;
    mkdirSync(blobsDir, { recursive: true, mode: 0o700 });
  }

  /** Returns the path of a blob, whether it is there or not. Throws when `sha256` is not a digest. */
  pathOf(sha256: string): string {
    if (!DIGEST.test(sha256)) throw new Error(`"${sha256}" is not a digest`);
    return join(this.#dir, sha256);
  }

  /** Returns a path in the same file system for a link to a blob that becomes the layer `layerId`. */
  linkPathOf(layerId: string): string {
    return join(this.#dir, `${layerId}.link`);
  }

  has(sha256: string): boolean {
    return existsSync(this.pathOf(sha256));
  }

  progress(sha256: string): BlobProgress {
    const names = this.has(sha256) ? [] : entriesOf(this.#partsOf(sha256));
    const parts = names.filter((name) => /^\d+$/.test(name)).map(Number);
    return { is_complete: this.has(sha256), parts: parts.sort((a, b) => a - b) };
  }

  /** Fetches one part unless it is there. Throws like {@link downloadPart}, and `fleet_capacity` on a full disk. */
  fetchPart(sha256: string, index: number, part: DownloadPart): Promise<void> {
    const path = join(this.#partsOf(sha256), String(index));
    return this.#once(path, async () => {
      if (this.has(sha256) || existsSync(path)) return;
      this.#room.refuseWhenShort(part.bytes);
      await mkdir(this.#partsOf(sha256), { recursive: true, mode: 0o700 });
      await downloadPart(path, part);
    });
  }

  /**
   * Makes the blob of its parts, durably. Throws `conflict` while a part is missing, `host_unavailable` when the
   * content is not what the name says (then all parts are removed), and `fleet_capacity` on a full disk.
   */
  assemble(sha256: string, bytes: number): Promise<void> {
    const path = this.pathOf(sha256);
    return this.#once(path, async () => {
      if (this.has(sha256)) return;
      const parts = Array.from({ length: partCount(bytes) }, (_, index) => join(this.#partsOf(sha256), String(index)));
      const missing = parts.findIndex((part) => !existsSync(part));
      if (missing >= 0) throw new ServiceError('conflict', `part ${missing} of the blob is not on this host`);
      this.#room.refuseWhenShort(bytes);
      const partial = `${path}${PARTIAL}`;
      const file = await open(partial, 'w', 0o600);
      try {
        const digest = await writeParts(file, parts, bytes);
        if (digest !== sha256) throw new Error(`its content has the digest ${digest}`);
        await file.sync();
      } catch (error) {
        rmSync(partial, { force: true });
        if (isDiskFull(error)) throw diskFull(error);
        rmSync(this.#partsOf(sha256), { recursive: true, force: true });
        const why = error instanceof Error ? error.message : String(error);
        throw new ServiceError('host_unavailable', `blob ${sha256} is not what was stored: ${why}`, { cause: error });
      } finally {
        await file.close();
      }
      chmodSync(partial, 0o444);
      renameSync(partial, path);
      await syncPath(this.#dir);
      rmSync(this.#partsOf(sha256), { recursive: true, force: true });
    });
  }

  /**
   * Removes what nobody has touched for `ageMs`: blobs whose path `isUsed` does not know, and transfers that were given
   * up. Synchronous, so no new use can appear meanwhile.
   */
  removeOld(ageMs: number, isUsed: (path: string) => boolean): string[] {
    const oldest = Date.now() - ageMs;
    const removed = entriesOf(this.#dir).filter((name) => {
      const path = join(this.#dir, name);
      return !isUsed(path) && !this.#isWorkingOn(path) && (statSync(path).mtimeMs ?? 0) < oldest;
    });
    for (const name of removed) rmSync(join(this.#dir, name), { recursive: true, force: true });
    return removed;
  }

  #isWorkingOn(path: string): boolean {
    const blob = path.replace(/\.[a-z]+$/, '');
    return [...this.#working.keys()].some((working) => working.startsWith(blob));
  }

  #partsOf(sha256: string): string {
    return `${this.pathOf(sha256)}${PARTS}`;
  }

  #once(path: string, work: () => Promise<void>): Promise<void> {
    const working = this.#working.get(path) ?? work().finally(() => this.#working.delete(path));
    this.#working.set(path, working);
    return working;
  }
}

/** Writes the content of all parts, without its zeros. Returns the SHA-256 of the content. */
async function writeParts(file: FileHandle, parts: readonly string[], bytes: number): Promise<string> {
  await file.truncate(bytes);
  const hash = createHash('sha256');
  for (const [index, path] of parts.entries()) {
    const offset = index * PART_BYTES;
    const raw = await unpackPart(await readFile(path), Math.min(PART_BYTES, bytes - offset));
    await updateInTurns(hash, raw);
    await writeUsed(file.fd, raw, offset);
  }
  return hash.digest('hex');
}

function entriesOf(dir: string): string[] {
  return existsSync(dir) ? readdirSync(dir) : [];
}
