// The folders of the data directory and their owners. When root runs the service, root owns the directory and others
// may pass through it but not list it. Only the folders of PostgreSQL and the control plane belong to the service's
// account.
import { chmod, chown, mkdir, open, rm, statfs } from 'node:fs/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { hasErrorCode, Problem } from '../problem.ts';
import type { UserIds } from './service-user.ts';

/** A first set-up downloads 0.3 GB and leaves 1.5 GB; the rest is room for a first machine. */
const FIRST_SETUP_BYTES = 4 * 2 ** 30;

/** Makes the folders. `user`: the account of the unprivileged processes; undefined: the caller's. Throws Problem. */
export async function ensureHome(home: string, user: UserIds | undefined): Promise<void> {
  const paths = homePaths(home);
  try {
    await ensureFolder(paths.home, user === undefined ? 0o700 : 0o711);
    await ensureFolder(paths.run, 0o755);
    await ensureFolder(paths.logs, 0o750);
    for (const folder of [paths.postgresSocketDir, `${paths.run}/control-plane`, paths.acme])
      await ensureFolder(folder, 0o700, user);
    await assertWritable(home);
  } catch (error) {
    if (hasErrorCode(error, 'ENOSPC', 'EDQUOT')) throw diskIsFull(home);
    if (!hasErrorCode(error, 'EACCES', 'EPERM', 'EROFS', 'ENOTDIR', 'EEXIST', 'ENOENT')) throw error;
    throw new Problem(
      `Cannot write to the data directory ${home} (${String(error)}): make it writable or name another one in SANDBAR_HOME`,
    );
  }
}

/** The Problem of a full disk. */
export function diskIsFull(home: string): Problem {
  return new Problem(
    `The disk of the data directory ${home} is full: free some space or name another one in SANDBAR_HOME`,
  );
}

/** Throws Problem when the file system of a folder has no room for a first set-up. */
export async function assertRoomForSetup(folder: string): Promise<void> {
  const { bavail, bsize } = await statfs(folder);
  const free = bavail * bsize;
  if (free >= FIRST_SETUP_BYTES) return;
  throw new Problem(
    `Not enough disk: ${folder} has ${(free / 2 ** 30).toFixed(1)} GB free and the first set-up needs ${FIRST_SETUP_BYTES / 2 ** 30} GB; free some or name another folder in SANDBAR_HOME and SANDBAR_CACHE`,
  );
}

async function ensureFolder(folder: string, mode: number, owner?: UserIds): Promise<void> {
  await mkdir(folder, { recursive: true });
  await chmod(folder, mode);
  if (owner !== undefined) await chown(folder, owner.uid, owner.gid);
}

/** Tries a write, because file modes do not show a full or (to root) a read-only file system. */
async function assertWritable(home: string): Promise<void> {
  const probe = `${home}/.write-probe-${process.pid}`;
  const file = await open(probe, 'wx');
  try {
    await file.write('x');
  } finally {
    await file.close();
    await rm(probe, { force: true });
  }
}
