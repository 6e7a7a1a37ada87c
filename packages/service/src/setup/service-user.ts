// The account that PostgreSQL and the control plane run as when the service is started by root.
import { spawnSync } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { Problem } from '../problem.ts';
import type { Progress } from '../progress.ts';
import { findExecutable } from './executables.ts';

export const SERVICE_USER = 'sandbar';

export type UserIds = { uid: number; gid: number };

/** Finds the account, or makes it. Throws Problem when that fails. */
export async function ensureServiceUser(progress: Progress): Promise<UserIds> {
  const found = await findServiceUser();
  if (found !== undefined) return found;

  const shell = findExecutable('nologin') ?? '/bin/false';
  const args = [
    '--system',
    '--no-create-home',
    '--user-group',
    '--shell',
    shell,
    '--home-dir',
    '/nonexistent',
    SERVICE_USER,
  ];
  const result = spawnSync(findExecutable('useradd') ?? 'useradd', args, { encoding: 'utf8' });
  const made = await findServiceUser();
  if (made === undefined) {
    const said = result.error?.message ?? result.stderr.trim();
    throw new Problem(
      `Cannot make the system user ${SERVICE_USER} (${said}); make it with: useradd --system --user-group ${SERVICE_USER}`,
    );
  }
  progress.say(`  ✓ made the system user ${SERVICE_USER}: PostgreSQL and the control plane do not run as root`);
  return made;
}

async function findServiceUser(): Promise<UserIds | undefined> {
  return parsePasswd(await readFile('/etc/passwd', 'utf8'), SERVICE_USER);
}

/** The ids of a user in the text of /etc/passwd. */
export function parsePasswd(passwd: string, name: string): UserIds | undefined {
  const fields = passwd
    .split('\n')
    .map((line) => line.split(':'))
    .find((entry) => entry[0] === name);
  if (fields === undefined) return undefined;
  return { uid: Number(fields[2]), gid: Number(fields[3]) };
}
