// Tests that the control plane's copy of the certificate follows the files, and who may read it.
import assert from 'node:assert/strict';
import {
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { apiUrlOf, readConfig } from '../config.ts';
import { copyCertificate } from './certificate-copy.ts';
import { controlPlaneDefinition } from './definitions.ts';
import { noConfinement } from './launch.ts';

const root = mkdtempSync(path.join(tmpdir(), 'sandbar-copy-'));
const over = new AbortController();
after(() => {
  over.abort();
  rmSync(root, { recursive: true });
});
const user = { uid: process.getuid?.() ?? 0, gid: process.getgid?.() ?? 0 };
const folder = path.join(root, 'copies');
const files = { cert: path.join(root, 'live', 'cert'), key: path.join(root, 'live', 'key') };
const copied = (name: string) => readFileSync(path.join(folder, name), 'utf8');

/** Replaces both files by turning a symbolic link. */
function publish(name: string): void {
  mkdirSync(path.join(root, name));
  writeFileSync(path.join(root, name, 'cert'), `cert of ${name}`);
  writeFileSync(path.join(root, name, 'key'), `key of ${name}`, { mode: 0o600 });
  symlinkSync(name, path.join(root, 'next'));
  renameSync(path.join(root, 'next'), path.join(root, 'live'));
}

async function until(condition: () => boolean): Promise<void> {
  for (const end = performance.now() + 10_000; !condition(); await delay(5)) assert(performance.now() < end);
}

describe('the copy of the certificate', () => {
  const lines: string[] = [];
  const copy = { files, folder, user, report: (line: string) => void lines.push(line) };

  it('needs readable files at the start', async () => {
    await assert.rejects(
      copyCertificate(copy, over.signal),
      /SANDBAR_TLS_CERT and SANDBAR_TLS_KEY cannot be read: ENOENT/,
    );
  });

  it('can be read by the control plane only, and changed by root only', async () => {
    publish('one');
    await copyCertificate(copy, over.signal, 10);
    assert.deepEqual([copied('certificate.pem'), copied('key.pem')], ['cert of one', 'key of one']);
    for (const name of ['certificate.pem', 'key.pem']) {
      const { mode, uid } = statSync(path.join(folder, name));
      assert.deepEqual([mode & 0o777, uid], [0o400, user.uid]);
    }
    assert.equal(statSync(folder).mode & 0o777, 0o711);
  });

  it('follows the files, and stays while they are missing', async () => {
    publish('two');
    await until(() => copied('key.pem') === 'key of two');
    rmSync(path.join(root, 'live'));
    await until(() => lines.length === 1);
    assert.match(lines[0] ?? '', /the certificate stays as it is: ENOENT/);
    assert.equal(copied('certificate.pem'), 'cert of two');
    publish('three');
    await until(() => copied('key.pem') === 'key of three');
    assert.equal(lines.length, 1);
  });
});

describe('with TLS', () => {
  const env = { SANDBAR_HOME: root, SANDBAR_TLS_CERT: '/etc/tls/cert', SANDBAR_TLS_KEY: '/etc/tls/key' };
  const urlWith = (more: Record<string, string>) => apiUrlOf(readConfig({ SANDBAR_HOME: root, ...more }, 1000));

  it('the address of the service is https, by the name that is known for it', () => {
    assert.equal(urlWith({}), 'http://127.0.0.1:7070');
    assert.equal(urlWith(env), 'https://127.0.0.1:7070');
    assert.equal(urlWith({ ...env, SANDBAR_PUBLIC_URL: 'https://a.example/' }), 'https://a.example');
    const acme = { SANDBAR_TLS_ACME_DOMAINS: 'a.example, b.example' };
    assert.equal(urlWith({ ...acme, SANDBAR_LISTEN: '0.0.0.0:443' }), 'https://a.example');
    assert.equal(urlWith({ ...acme, SANDBAR_LISTEN: '0.0.0.0:8443' }), 'https://a.example:8443');
  });

  it('the control plane gets the capability to listen on low ports only when it does', () => {
    const asked: unknown[] = [];
    for (const more of [{}, { SANDBAR_LISTEN: '127.0.0.1:443' }, { SANDBAR_TLS_ACME_DOMAINS: 'a.example' }]) {
      const definition = controlPlaneDefinition(
        readConfig({ SANDBAR_HOME: root, ...more }, 1000),
        'x'.repeat(40),
        (capabilities) => {
          asked.push(capabilities);
          return { ...noConfinement(root), wrap: () => ['/bin/true'] };
        },
        undefined,
      );
      definition.spawn(2);
    }
    assert.deepEqual(asked, ['-all', '-all,+net_bind_service', '-all,+net_bind_service']);
  });

  it('the time to stop follows the settings', () => {
    const config = readConfig({ SANDBAR_HOME: root, SANDBAR_DRAIN_SEC: '30', SANDBAR_SHUTDOWN_SEC: '20' }, 1000);
    assert.equal(config.stopWithinMs, 60_000);
  });
});
