/**
 * The build cache. Each artifact lives in a folder named after a hash of all its inputs. A folder is completed
 * elsewhere and then renamed into place, so neither a crashed build nor two parallel builds leave an incomplete
 * artifact.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { chmod, lstat, mkdir, open, readdir, readFile, readlink, rename, stat, symlink } from 'node:fs/promises';
import path from 'node:path';
import { runBuildCommand } from './build-command.ts';
import { hasErrorCode, ImageError } from './image-error.ts';

const TEMPORARY_PREFIX = '.tmp-';

/**
 * Returns a hash of all inputs of an artifact, 24 hex digits. Object keys are sorted, so the order in a JSON file does
 * not matter.
 */
export function cacheKey(...inputs: unknown[]): string {
  return createHash('sha256').update(JSON.stringify(inputs, sortKeys)).digest('hex').slice(0, 24);
}

function sortKeys(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/**
 * Returns a hash of a folder's file names, contents, link targets and executable bits. A missing folder counts as
 * empty. `isInput` selects the paths to include.
 */
export async function hashFolder(
  folder: string,
  isInput: (relativePath: string) => boolean = () => true,
): Promise<string> {
  const names = await readdir(folder, { recursive: true }).catch((error: unknown) => {
    if (hasErrorCode(error, 'ENOENT')) return [];
    throw error;
  });
  const hash = createHash('sha256');
  for (const name of names.filter(isInput).sort()) {
    const file = path.join(folder, name);
    const info = await lstat(file);
    if (info.isDirectory()) continue;
    const content = info.isSymbolicLink() ? await readlink(file) : await readFile(file);
    hash
      .update(`${name}\0${info.isSymbolicLink() ? 'link' : (info.mode & 0o111) !== 0}\0${content.length}\0`)
      .update(content);
  }
  return hash.digest('hex');
}

/** Returns the SHA-256 of a file of any size, as hex digits. */
export async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk);
  return hash.digest('hex');
}

export interface Artifact {
  folder: string;
  /** False when the folder already existed. */
  wasBuilt: boolean;
}

/**
 * Returns the folder `parent/key`. If it is missing, or lacks one of the `required` files because somebody deleted it,
 * `make` fills a temporary folder, which then becomes `parent/key`. First removes temporary folders of builders that no
 * longer run. When two processes build the same artifact, the slower one discards its result.
 */
export async function ensureArtifact(
  parent: string,
  key: string,
  make: (temporaryFolder: string) => Promise<void>,
  required: readonly string[] = [],
): Promise<Artifact> {
  const folder = path.join(parent, key);
  await mkdir(parent, { recursive: true }).catch((error: unknown) => {
    const remedy = 'choose one that this account may write';
    throw new ImageError(`Cannot make the cache folder ${parent} (${String(error)}); ${remedy}`);
  });
  await removeAbandoned(parent);
  if (await isFolder(folder)) {
    if (required.every((name) => existsSync(path.join(folder, name)))) return { folder, wasBuilt: false };
    await removeFolder(folder);
  }

  return withTemporaryFolder(parent, async (temporary) => {
    // Without root the chroot belongs to other uids, which must be able to enter this folder.
    await chmod(temporary, 0o755);
    await make(temporary);
    await syncFiles(temporary);
    const wasBuilt = await renameUnlessTaken(temporary, folder);
    return { folder, wasBuilt };
  });
}

/**
 * Calls `use` with an empty folder below `parent` that only this account may enter, then removes the folder. When this
 * process is killed, the next call in another process removes the folder.
 */
export async function withTemporaryFolder<T>(parent: string, use: (folder: string) => Promise<T>): Promise<T> {
  await mkdir(parent, { recursive: true });
  await removeAbandoned(parent);
  const temporary = path.join(parent, `${TEMPORARY_PREFIX}${makerOfThisProcess()}-${randomBytes(4).toString('hex')}`);
  await mkdir(temporary, { mode: 0o700 });
  try {
    return await use(temporary);
  } finally {
    await removeFolder(temporary);
  }
}

/**
 * Points the symlink `link` at `target`, a name in the same folder, in one step: readers see the old or the new target.
 */
export async function replaceLink(link: string, target: string): Promise<void> {
  const temporary = `${link}.${randomBytes(4).toString('hex')}`;
  await symlink(target, temporary);
  await rename(temporary, link);
}

async function isFolder(folder: string): Promise<boolean> {
  return stat(folder).then(
    (info) => info.isDirectory(),
    () => false,
  );
}

/** Writes all files of the folder to disk. Otherwise a power cut could preserve the rename but lose the content. */
async function syncFiles(folder: string): Promise<void> {
  for (const entry of await readdir(folder, { withFileTypes: true })) {
    if (!entry.isFile()) continue;
    const file = await open(path.join(folder, entry.name), 'r');
    await file.sync().finally(() => file.close());
  }
}

async function renameUnlessTaken(from: string, to: string): Promise<boolean> {
  try {
    await rename(from, to);
    return true;
  } catch (error) {
    if (hasErrorCode(error, 'ENOTEMPTY', 'EEXIST')) return false;
    throw error;
  }
}

/** Returns `<pid>-<start time in clock ticks>` of this process. The pid alone may later belong to another process. */
function makerOfThisProcess(): string {
  return `${process.pid}-${startTimeOf(process.pid) ?? 0}`;
}

/**
 * Returns field 22 of /proc/<pid>/stat. Counts from the last closing bracket, because field 2, the program's name, may
 * contain spaces and brackets.
 */
function startTimeOf(pid: number): string | undefined {
  try {
    const fields = readFileSync(`/proc/${pid}/stat`, 'latin1');
    return fields.slice(fields.lastIndexOf(')') + 2).split(' ')[19];
  } catch {
    return undefined;
  }
}

async function removeAbandoned(parent: string): Promise<void> {
  for (const name of await readdir(parent)) {
    if (!name.startsWith(TEMPORARY_PREFIX)) continue;
    const [pid, startTime] = name.slice(TEMPORARY_PREFIX.length).split('-');
    if (startTimeOf(Number(pid)) === startTime) continue;
    await removeFolder(path.join(parent, name)).catch((error: unknown) => {
      // A child of the killed builder may still be writing there. The next build tries again.
      if (!(error instanceof ImageError)) throw error;
    });
  }
}

/**
 * Removes a folder but never crosses into another file system, because a mount below it is not the build's to delete.
 */
export async function removeFolder(folder: string): Promise<void> {
  const args = ['-rf', '--one-file-system', '--', folder];
  try {
    await runBuildCommand({ command: 'rm', args });
  } catch (error) {
    if (process.getuid?.() === 0) throw error;
    // Without root, an unpacked chroot belongs to uids of a user namespace, and only processes in that namespace can
    // remove it.
    await runBuildCommand({ command: 'mmdebstrap', args: ['--unshare-helper', 'rm', ...args] });
    await runBuildCommand({ command: 'rm', args });
  }
}
