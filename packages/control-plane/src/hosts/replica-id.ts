// The id under which a replica holds its leases. It is kept in a file beside the operator's socket. So a replica that
// is started again after a crash goes on with its leases at once, and need not wait until they expire.
import { randomUUID } from 'node:crypto';
import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Log } from '../log.ts';

const CONTENT = /^([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}) (\d+)$/;

/**
 * Returns the id of the process that used the folder before, if that process is gone. Otherwise returns a new id.
 * `adminSocket`: the path of the operator's socket.
 */
export async function takeReplicaId(adminSocket: string, log: Log): Promise<string> {
  const folder = dirname(adminSocket);
  const path = join(folder, 'replica.id');
  const [, known, pid] = CONTENT.exec(await readFile(path, 'utf8').catch(() => '')) ?? [];
  const id = known !== undefined && !isAlive(Number(pid)) ? known : randomUUID();
  try {
    await mkdir(folder, { recursive: true, mode: 0o700 });
    await writeFile(path, `${id} ${process.pid}`, { mode: 0o600 });
  } catch (err) {
    log.warn({ err }, 'the id of this replica could not be stored, so after a crash it waits until its leases end');
  }
  return id;
}

/** Whether another process with this pid runs. */
function isAlive(pid: number): boolean {
  // In a container, an earlier process may have had the pid that this process has now.
  if (pid === process.pid) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    // A process of another user exists, but must not be signalled.
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
