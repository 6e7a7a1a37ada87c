// Tests that no secret is in the environment or the arguments of a process that the supervisor starts.
import assert from 'node:assert/strict';
import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { type AddressInfo, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { readSecrets } from '@sandbar/contract/secrets.ts';
import { readConfig } from '../config.ts';
import { ensureDashboard } from '../setup/dashboard.ts';
import { controlPlaneDefinition, hostAgentDefinition } from './definitions.ts';
import { noConfinement } from './launch.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-secrets-'));
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(folder, { recursive: true });
});
const log = openSync(path.join(folder, 'log'), 'a');
const file = (name: string, content: string): string => {
  const at = path.join(folder, name);
  writeFileSync(at, content);
  return at;
};
/** Every secret of the tests contains this word. */
const MARK = 'hush';

/**
 * Starts a database that accepts connections and never answers, so that the control plane never gets past its start.
 */
async function silentDatabase() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  after(() => server.close());
  server.on('connection', (socket) => {
    children.at(-1)?.once('exit', () => socket.destroy());
    socket.on('error', () => undefined);
  });
  return { server, port: (server.address() as AddressInfo).port };
}

describe('secrets of the supervised processes', () => {
  it('reach the control plane, and are neither in its environment nor in its arguments', async () => {
    const { server, port } = await silentDatabase();
    const env = {
      ...{ SANDBAR_HOME: folder, SANDBAR_LISTEN: '127.0.0.1:1024', SANDBAR_METRICS_LISTEN: '127.0.0.1:1025' },
      SANDBAR_DATABASE_URL_FILE: file('url', `postgres://user:${MARK}@127.0.0.1:${port}/x\n`),
      SANDBAR_SMTP_URL: `smtp://user:${MARK}@127.0.0.1`,
      SANDBAR_MAIL_FROM: 'sandbar@example.test',
      SANDBAR_STRIPE_SECRET_KEY: `sk_test_${MARK}`,
      SANDBAR_STRIPE_WEBHOOK_SECRET_FILE: file('webhooks', `whsec_${MARK}\n`),
      PGPASSWORD: MARK,
      OTEL_EXPORTER_OTLP_ENDPOINT: 'http://127.0.0.1:1026',
      OTEL_EXPORTER_OTLP_HEADERS: `api-key=${MARK}`,
    };
    const config = readConfig(env, 1000);
    const secret = `${MARK} and at least 32 characters more`;
    const confine = () => noConfinement(config.checkout);
    const definition = controlPlaneDefinition(config, secret, confine, undefined);
    const connected = once(server, 'connection');
    const child = definition.spawn(log);
    children.push(child);
    const ended = once(child, 'exit').then(() => assert.fail(readFileSync(path.join(folder, 'log'), 'utf8')));
    await Promise.race([connected, ended]);
    const shown = ['environ', 'cmdline'].map((name) => readFileSync(`/proc/${child.pid}/${name}`, 'utf8')).join();
    assert.match(shown, /SANDBAR_LISTEN=127/);
    assert.match(shown, /OTEL_EXPORTER_OTLP_ENDPOINT=http/);
    assert.doesNotMatch(shown, new RegExp(MARK));
    ended.catch(() => undefined);
  });

  it('do not reach the host agent, except those for the collector of traces', async () => {
    // This program replaces node and writes its environment to a file.
    const node = path.join(folder, 'node_modules/node/bin/node');
    const written = path.join(folder, 'environment');
    mkdirSync(path.dirname(node), { recursive: true });
    writeFileSync(node, `#!/bin/sh\n/usr/bin/env > ${written}.new\nmv ${written}.new ${written}\n`);
    chmodSync(node, 0o755);
    const env = {
      ...{ SANDBAR_HOME: folder, SANDBAR_QEMU: '/opt/qemu', PATH: process.env.PATH },
      ...{ SANDBAR_DATABASE_URL: `postgres://user:${MARK}@x/y`, SANDBAR_SECRET: MARK, PGPASSWORD: MARK },
      ...{
        OTEL_EXPORTER_OTLP_ENDPOINT: 'http://c',
        OTEL_EXPORTER_OTLP_HEADERS_FILE: file('headers', 'api-key=quiet\n'),
      },
    };
    const child = hostAgentDefinition({ ...readConfig(env, 1000), checkout: folder }, undefined).spawn(log);
    children.push(child);
    await once(child, 'exit');
    assert(existsSync(written));
    const environment = readFileSync(written, 'utf8');
    assert.match(environment, /SANDBAR_QEMU=/);
    assert.match(environment, /^OTEL_EXPORTER_OTLP_ENDPOINT=http:\/\/c$/m);
    assert.match(environment, /^OTEL_EXPORTER_OTLP_HEADERS=api-key=quiet$/m);
    assert.doesNotMatch(environment, new RegExp(MARK));
  });

  it('do not reach the build of the dashboard, and no variable reaches it that could change the result', async () => {
    const checkout = path.join(folder, 'checkout');
    const written = path.join(folder, 'environment-of-build');
    // This program replaces Vite and writes its environment to a file.
    const vite = `
      const { writeFileSync } = require('node:fs');
      writeFileSync(${JSON.stringify(written)}, JSON.stringify(process.env));
      writeFileSync(process.argv[process.argv.indexOf('--outDir') + 1] + '/index.html', 'page');`;
    for (const name of ['packages/dashboard', 'packages/contract/src', 'node_modules/vite/bin']) {
      mkdirSync(path.join(checkout, name), { recursive: true });
    }
    writeFileSync(path.join(checkout, 'package-lock.json'), '{}');
    writeFileSync(path.join(checkout, 'node_modules/vite/bin/vite.js'), vite);
    const changed = { SANDBAR_SECRET: MARK, SANDBAR_STRIPE_SECRET_KEY: MARK, VITE_X: MARK, NODE_ENV: 'development' };
    const before = { ...process.env };
    Object.assign(process.env, changed);
    try {
      assert.ok(await ensureDashboard(checkout, path.join(folder, 'cache'), assert.fail));
    } finally {
      process.env = before;
    }
    const { PATH, HOME, ...rest } = JSON.parse(readFileSync(written, 'utf8'));
    assert.deepEqual([PATH, HOME], [process.env.PATH, process.env.HOME]);
    assert.deepEqual(rest, { NODE_ENV: 'production' });
  });
});

describe('a secret in a file', () => {
  it('has no line break at its end, and a second value for it is refused', () => {
    const SANDBAR_SECRET_FILE = file('secret', `${MARK}\n`);
    assert.equal(readSecrets({ SANDBAR_SECRET_FILE }).SANDBAR_SECRET, MARK);
    assert.throws(() => readSecrets({ SANDBAR_SECRET_FILE, SANDBAR_SECRET: 'x' }), /exclude each other/);
    assert.throws(() => readSecrets({ SANDBAR_SECRET_FILE: '/nonexistent' }), /cannot be read \(ENOENT\)/);
  });
});
