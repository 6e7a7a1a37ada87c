// TLS to a real PostgreSQL that accepts nothing else over TCP.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmodSync, chownSync, copyFileSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { sql } from 'kysely';
import { asOwner } from '../src/db/database.ts';
import { DatabaseAway } from '../src/db/failures.ts';
import { createLog } from '../src/log.ts';
import { freePort } from './support/free-ports.ts';
import { startPostgres } from './support/postgres.ts';

const folder = mkdtempSync(join(tmpdir(), 'sandbar-tls-'));
after(() => rmSync(folder, { recursive: true, force: true }));
const file = (name: string) => join(folder, name);
const openssl = (...args: string[]) => execFileSync('openssl', args, { stdio: 'pipe' });

/** Makes the certificate of an authority, in NAME.crt. */
function createAuthority(name: string): void {
  const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-keyout', file(`${name}.key`)];
  openssl('req', '-x509', ...key, '-out', file(`${name}.crt`), '-days', '2', '-subj', `/CN=${name}`);
}

createAuthority('ours');
createAuthority('other');
openssl(
  ...['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes', '-days', '2'],
  ...['-CA', file('ours.crt'), '-CAkey', file('ours.key'), '-keyout', file('server.key'), '-out', file('server.crt')],
  ...['-subj', '/CN=localhost', '-addext', 'subjectAltName=DNS:localhost', '-addext', 'basicConstraints=CA:FALSE'],
);

const port = await freePort();
await startPostgres({
  settings: ['listen_addresses=127.0.0.1', `port=${port}`, 'ssl=on'],
  prepare: (data) => {
    const { uid, gid } = statSync(data);
    for (const name of ['server.crt', 'server.key']) {
      copyFileSync(file(name), join(data, name));
      chownSync(join(data, name), uid, gid);
      chmodSync(join(data, name), 0o600);
    }
    writeFileSync(join(data, 'pg_hba.conf'), 'local all all trust\nhostssl all all 127.0.0.1/32 trust\n');
  },
});

async function isEncrypted(host: string, query: string): Promise<boolean | undefined> {
  const url = `postgres://postgres@${host}:${port}/postgres${query}`;
  const statement = sql<{ ssl: boolean }>`select ssl from pg_stat_ssl where pid = pg_backend_pid()`;
  const { rows } = await asOwner(url, createLog('silent'), (owner) => statement.execute(owner));
  return rows[0]?.ssl;
}
const isRefused = (words: RegExp) => (error: unknown) => error instanceof DatabaseAway && words.test(error.message);

describe('TLS to the database', () => {
  it('verify-full checks the authority and the name of the server', async () => {
    assert.equal(await isEncrypted('localhost', `?sslmode=verify-full&sslrootcert=${file('ours.crt')}`), true);
    const otherName = isEncrypted('127.0.0.1', `?sslmode=verify-full&sslrootcert=${file('ours.crt')}`);
    await assert.rejects(otherName, isRefused(/does not match certificate/));
    const otherAuthority = isEncrypted('localhost', `?sslmode=verify-full&sslrootcert=${file('other.crt')}`);
    await assert.rejects(otherAuthority, isRefused(/unable to verify/));
    await assert.rejects(isEncrypted('localhost', '?sslmode=verify-full'), isRefused(/unable to verify/));
  });

  it('verify-ca checks the authority only, and require neither', async () => {
    assert.equal(await isEncrypted('127.0.0.1', `?sslmode=verify-ca&sslrootcert=${file('ours.crt')}`), true);
    const otherAuthority = isEncrypted('127.0.0.1', `?sslmode=verify-ca&sslrootcert=${file('other.crt')}`);
    await assert.rejects(otherAuthority, isRefused(/unable to verify/));
    assert.equal(await isEncrypted('127.0.0.1', '?sslmode=require'), true);
  });

  it('holds for each of several servers', async () => {
    const none = await freePort();
    const url = `127.0.0.1:${none},localhost`;
    assert.equal(await isEncrypted(url, `?sslmode=verify-full&sslrootcert=${file('ours.crt')}`), true);
  });

  it('is not used without sslmode', async () => {
    await assert.rejects(isEncrypted('127.0.0.1', ''), isRefused(/no encryption/));
  });
});
