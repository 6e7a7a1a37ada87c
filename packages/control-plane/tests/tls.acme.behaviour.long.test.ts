// Tests that the service gets and renews its certificate from a real ACME server, as a process of its own, because only
// the environment of a process says which authorities it trusts.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { connect } from 'node:tls';
import { homePaths } from '@sandbar/contract/home.ts';
import { renewAt } from '../src/tls/acme/renewal.ts';
import { makeAuthority } from './support/certificates.ts';
import { FakeHost } from './support/fake-host.ts';
import { freePorts } from './support/free-ports.ts';
import { startPebble } from './support/pebble.ts';
import { createDatabase, endSharedPostgres, until } from './support/postgres.ts';

const MAIN = new URL('../src/main.ts', import.meta.url).pathname;
const DOMAINS = ['api.sandbar.test', 'other.sandbar.test'];
const databaseUrl = await createDatabase();
const home = mkdtempSync(join(tmpdir(), 'sandbar-acme-'));
const paths = homePaths(home);
mkdirSync(paths.run, { recursive: true });
const host = new FakeHost(paths.hostAgentSocket);
await host.listen();
const [listen, metrics, http, api, management, dns] = (await freePorts(6)) as [
  number,
  number,
  number,
  number,
  number,
  number,
];
const authority = await makeAuthority('Of the ACME server itself');
const caFile = join(home, 'authority.pem');
writeFileSync(caFile, authority.ca);
const children: ChildProcess[] = [];
after(async () => {
  for (const child of children) child.kill('SIGKILL');
  await host.away();
  await endSharedPostgres();
  rmSync(home, { recursive: true, force: true });
});
const pair = await authority.issue(['localhost', '127.0.0.1']);
children.push(...(await startPebble({ folder: home, pair, ports: { api, management, dns, http } })));

/** Starts the control plane. `output` returns what it has logged so far. */
async function start(): Promise<{ child: ChildProcess; output: () => string }> {
  const child = spawn(process.execPath, [MAIN], {
    stdio: ['ignore', 'pipe', 'pipe', 'ipc'],
    env: {
      PATH: process.env.PATH ?? '',
      NODE_EXTRA_CA_CERTS: caFile,
      SANDBAR_HOME: home,
      SANDBAR_LISTEN: `127.0.0.1:${listen}`,
      SANDBAR_METRICS_LISTEN: `127.0.0.1:${metrics}`,
      SANDBAR_DATABASE_URL: databaseUrl,
      SANDBAR_SECRET: 'a secret of the tests that is long enough',
      SANDBAR_TLS_ACME_DOMAINS: DOMAINS.join(),
      SANDBAR_TLS_ACME_EMAIL: 'admin@sandbar.test',
      SANDBAR_TLS_ACME_DIRECTORY: `https://localhost:${api}/dir`,
      SANDBAR_TLS_ACME_LISTEN: `127.0.0.1:${http}`,
    },
  });
  children.push(child);
  let output = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (data) => (output += data));
  const [message] = await once(child, 'message', { signal: AbortSignal.timeout(60_000) });
  assert.deepEqual(message, { type: 'ready' }, output);
  return { child, output: () => output };
}

async function stop(child: ChildProcess): Promise<void> {
  child.kill('SIGTERM');
  await once(child, 'exit');
}

/** Returns the certificate that the API shows; undefined when there is none yet. */
async function shownCertificate(): Promise<X509Certificate | undefined> {
  // The certificate's authority is made anew at each start of the ACME server, so it is not checked here.
  const socket = connect({ host: '127.0.0.1', port: listen, servername: DOMAINS[0] ?? '', rejectUnauthorized: false });
  try {
    await once(socket, 'secureConnect');
    return socket.getPeerX509Certificate();
  } catch {
    return undefined;
  } finally {
    socket.destroy();
  }
}

const stored = (): string => {
  const [folder = ''] = readdirSync(paths.acme);
  return join(paths.acme, folder, 'certificate.pem');
};

describe('ACME', () => {
  let first: X509Certificate | undefined;

  it('gets a certificate for all domains, and keeps it for the next start', async () => {
    const one = await start();
    await until(async () => (await shownCertificate()) !== undefined, 'there is a certificate', 60_000).catch(
      (error) => {
        throw new Error(`${error}\n${one.output()}`);
      },
    );
    first = await shownCertificate();
    assert.match(first?.issuer ?? '', /Pebble/);
    assert.equal(first?.subjectAltName, DOMAINS.map((name) => `DNS:${name}`).join(', '));
    assert.equal(statSync(stored()).mode & 0o777, 0o600);
    assert.equal(statSync(join(stored(), '..')).mode & 0o777, 0o700);
    await stop(one.child);
    const again = await start();
    assert.equal((await shownCertificate())?.fingerprint256, first?.fingerprint256);
    assert.doesNotMatch(again.output(), /a certificate was issued/);

    const redirect = await fetch(`http://127.0.0.1:${http}/machines?x=1`, { redirect: 'manual' });
    assert.deepEqual(
      [redirect.status, redirect.headers.get('location')],
      [308, `https://${DOMAINS[0]}:${listen}/machines?x=1`],
    );
    assert.equal((await fetch(`http://127.0.0.1:${http}/v1/machines`, { method: 'POST' })).status, 400);
    await stop(again.child);
  });

  it('replaces a certificate with less than a third of its life left, and uses the old one until then', async () => {
    const day = 86_400_000;
    const old = await authority.issue(DOMAINS, { fromMs: Date.now() - 69 * day, toMs: Date.now() + 21 * day });
    writeFileSync(stored(), `${old.key}${old.cert}`);
    const { child } = await start();
    await until(
      async () => /Pebble/.test((await shownCertificate())?.issuer ?? ''),
      'the certificate is replaced',
      60_000,
    );
    assert.notEqual((await shownCertificate())?.fingerprint256, first?.fingerprint256);
    assert.match(readFileSync(stored(), 'utf8'), /PRIVATE KEY[\s\S]*BEGIN CERTIFICATE/);
    await stop(child);
  });

  it('renews when a third of the life is left', async () => {
    const [fromMs, toMs] = [Date.UTC(2026, 0, 1), Date.UTC(2026, 3, 1)];
    const { cert } = await authority.issue(DOMAINS, { fromMs, toMs });
    assert.equal(renewAt(new X509Certificate(cert)), Date.UTC(2026, 2, 2));
  });
});
