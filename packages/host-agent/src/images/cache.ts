/**
 * The build cache. Every artifact lives in a folder named after a hash of all that went into it and is only ever
 * renamed into place complete, so that a build that dies, or two at once, cannot leave a half-made artifact behind.
 */
import { createHash, randomBytes } from 'node:crypto';
import { createReadStream, existsSync, readFileSync } from 'node:fs';
import { chmod, lstat, mkdir, open, readdir, readFile, readlink, rename, stat, symlink } from 'node:fs/promises';
import path from 'node:path';
import { runBuildCommand } from './build-command.ts';
import { hasErrorCode, ImageError } from './image-error.ts';

const TEMPORARY_PREFIX = '.tmp-';

/** Hashes what goes into an artifact. Keys of objects are sorted, so that the order of a JSON file does not matter. */
export function cacheKey(...inputs: unknown[]): string {
  return createHash('sha256').update(JSON.stringify(inputs, sortKeys)).digest('hex').slice(0, 24);
}

function sortKeys(_key: string, value: unknown): unknown {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return value;
  return Object.fromEntries(Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Hash of a folder: names, contents, links and whether a file may be executed. A folder that is missing is empty. */
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

/** SHA-256 of a file of any size, in hexadecimal. */
export async function hashFile(file: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(file, { highWaterMark: 1 << 20 })) hash.update(chunk);
  return hash.digest('hex');
}

export interface Artifact {
  folder: string;
  /** False when the folder was there already. */
  wasBuilt: boolean;
}

/**
 * Returns the folder `parent/key`, made by `make` in a temporary folder beside it if it is not there yet, or lacks one of
 * the `required` files because somebody deleted it. Temporary folders of builders that no longer run are removed first.
 * Of two builders at once the slower one loses its work.
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
    // Without root the chroot belongs to other user ids, which must be able to pass through.
    await chmod(temporary, 0o755);
    await make(temporary);
    await syncFiles(temporary);
    const wasBuilt = await renameUnlessTaken(temporary, folder);
    return { folder, wasBuilt };
  });
}

/**
 * Runs `use` with an empty folder below `parent` that only this account may enter, and removes it. One that is left
 * behind by a process that was killed goes with the next.
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

/** Points `link` at `target` (a name beside it) in one step: a reader sees the old one or the new one. */
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

/** What a power cut must not undo: a rename that survives while the content it published does not. */
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

/** `<pid>-<start time in clock ticks>`: a process id alone is used again by another process sooner or later. */
function makerOfThisProcess(): string {
  return `${process.pid}-${startTimeOf(process.pid) ?? 0}`;
}

/** Field 22 of /proc/<pid>/stat; the name in field 2 may hold spaces and brackets, so it counts from the last one. */
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
      // A child of the dead builder may still write there until it notices; the next build finds it quiet.
      if (!(error instanceof ImageError)) throw error;
    });
  }
}

/** Never into another file system: whatever may be mounted there is not the build's to delete. */
async function removeFolder(folder: string): Promise<void> {
  const args = ['-rf', '--one-file-system', '--', folder];
  try {
    await runBuildCommand({ command: 'rm', args });
  } catch (error) {
    if (process.getuid?.() === 0) throw error;
    // A chroot that was unpacked without root belongs to user ids that only its own user namespace may remove.
    await runBuildCommand({ command: 'mmdebstrap', args: ['--unshare-helper', 'rm', ...args] });
    await runBuildCommand({ command: 'rm', args });
  }
}
