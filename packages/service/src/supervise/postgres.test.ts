// Tests the real PostgreSQL, run as the service runs it: confined when the caller is root.
import assert from 'node:assert/strict';
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { homePaths } from '@sandbar/contract/home.ts';
import pg from 'pg';
import { readConfig, type ServiceConfig } from '../config.ts';
import { silentProgress } from '../progress.ts';
import { ensureHome } from '../setup/home.ts';
import { ensurePostgresData } from '../setup/postgres-data.ts';
import { ensureServiceUser, type UserIds } from '../setup/service-user.ts';
import { databaseUrlOf, postgresDefinition } from './definitions.ts';
import { confinementFor, makeMountPoint, mountPointOf, noConfinement, removeMountPoint } from './launch.ts';
import { endLeftovers } from './leftovers.ts';
import { readPidFile, writePidFile } from './pid-file.ts';
import { isAlive } from './process-identity.ts';
import { SupervisedProcess } from './supervised-process.ts';

const isRoot = process.getuid?.() === 0;
// The data directory is in a folder that only its owner may enter, and whose name has a space.
const outer = mkdtempSync(path.join(tmpdir(), 'sandbar pg '));
chmodSync(outer, 0o700);
const config: ServiceConfig = readConfig(
  { ...process.env, SANDBAR_HOME: path.join(outer, 'home') },
  process.getuid?.() ?? -1,
);
const paths = homePaths(config.home);
const mountPoint = mountPointOf(config.home);
let user: UserIds | undefined;
let postgres: SupervisedProcess;
const confine = () =>
  user === undefined ? noConfinement(config.checkout) : confinementFor(mountPoint, config.checkout, user);

async function query(sql: string): Promise<Record<string, unknown>[]> {
  const client = new pg.Client({ connectionString: databaseUrlOf(paths.postgresSocketDir) });
  await client.connect();
  try {
    return (await client.query(sql)).rows;
  } finally {
    await client.end();
  }
}

function newPostgres(): SupervisedProcess {
  return new SupervisedProcess(postgresDefinition(config, confine), () => {});
}

before(async () => {
  user = isRoot ? await ensureServiceUser(silentProgress) : undefined;
  await ensureHome(config.home, user);
  if (user !== undefined) makeMountPoint(mountPoint);
  await ensurePostgresData(config.home, confine());
  postgres = newPostgres();
  await postgres.start();
});
after(async () => {
  await postgres.stop();
  removeMountPoint(mountPoint);
  rmSync(outer, { recursive: true });
});

describe('embedded PostgreSQL', () => {
  it('serves a UTF-8 database over its Unix socket only, with fsync on', async () => {
    assert.deepEqual(
      await query(`select current_database() as name, getdatabaseencoding() as encoding,
      current_setting('fsync') as fsync, current_setting('listen_addresses') as tcp, current_setting('data_checksums') as sums`),
      [{ name: 'sandbar', encoding: 'UTF8', fsync: 'on', tcp: '', sums: 'on' }],
    );
    assert.equal(statSync(paths.postgresSocketDir).mode & 0o777, 0o700);
  });

  it('does not run as root, has no capability, and leaves no mount in our namespace', { skip: !isRoot }, () => {
    const status = readFileSync(`/proc/${postgres.pid}/status`, 'utf8');
    assert.match(status, new RegExp(`^Uid:\\s+${user?.uid}\\s+${user?.uid}\\s`, 'm'));
    assert.match(status, /^NoNewPrivs:\s+1$/m);
    assert.doesNotMatch(status, /^Cap(Inh|Prm|Eff|Bnd|Amb):\s+0*[1-9a-f]/m);
    assert.ok(!readFileSync('/proc/self/mountinfo', 'utf8').includes(mountPoint));
  });

  it('a second set-up changes nothing; another major version is refused with what to do', async () => {
    const version = path.join(paths.postgresData, 'PG_VERSION');
    const before = statSync(version).mtimeMs;
    await ensurePostgresData(config.home, confine());
    assert.equal(statSync(version).mtimeMs, before);
    const kept = readFileSync(version, 'utf8');
    writeFileSync(version, '12\n');
    await assert.rejects(ensurePostgresData(config.home, confine()), /made by PostgreSQL 12 .*pg_dump/);
    writeFileSync(version, kept);
  });

  it('keeps its data over kill -9 of all of it, and a leftover of a killed supervisor is ended', async () => {
    await query('create table kept as select 42 as answer');
    const pid = postgres.pid ?? 0;
    process.kill(pid, 'SIGKILL');
    while (postgres.pid === pid || readPidFile(paths.pidFile('postgres')) === undefined)
      await new Promise((r) => setTimeout(r, 5));

    // The process is now a leftover for a second supervisor, which did not start it.
    const left = readPidFile(paths.pidFile('postgres'));
    assert.ok(left !== undefined && isAlive(left));
    const lines: string[] = [];
    const stopping = postgres.stop();
    await endLeftovers(config.home, (line) => lines.push(line));
    await stopping;
    assert.equal(isAlive(left), false);
    postgres = newPostgres();
    await postgres.start();
    assert.deepEqual(await query('select answer from kept'), [{ answer: 42 }]);
  });

  it('a pid file of another program is removed, and that program is left alone', async () => {
    const file = paths.pidFile('host-agent');
    writePidFile(file, process.pid);
    await postgres.stop();
    await endLeftovers(config.home, () => {});
    assert.equal(existsSync(file), false);
    postgres = newPostgres();
    await postgres.start();
  });
});
