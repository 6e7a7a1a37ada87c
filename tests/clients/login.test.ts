// Tests `sandbar login` with the running service. The test itself approves or denies the code.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { BASE_URL, HOME } from '../e2e/support/service.ts';

const CLI = new URL('../../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;
const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-login-'));
after(() => rmSync(folder, { recursive: true, force: true }));

let cookie: string;

before(async () => {
  const { email, password } = JSON.parse(readFileSync(path.join(HOME, 'credentials.json'), 'utf8'));
  const response = await post('/v1/auth/sign-in', { email, password });
  assert.equal(response.status, 200);
  cookie = response.headers
    .getSetCookie()
    .map((one) => one.split(';')[0])
    .join('; ');
});

function post(at: string, body: object, headers: Record<string, string> = {}): Promise<Response> {
  return fetch(`${BASE_URL}${at}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify(body),
  });
}

function start(args: string[]) {
  const { SANDBAR_API_KEY: _key, SANDBAR_BASE_URL: _url, ...env } = process.env;
  return spawn(process.execPath, [CLI, ...args], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...env, XDG_CONFIG_HOME: folder, SANDBAR_HOME: '/nowhere/sandbar' },
  });
}

/** Runs `sandbar login`, approves or denies its code as the owner of the account, and waits for its end. */
async function logIn(answer: 'approve' | 'deny', more: object) {
  const child = start(['login', BASE_URL, '--no-browser', '--name', 'a test']);
  let stderr = '';
  const shown = Promise.withResolvers<string>();
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
    const [, code] = /\buser_code=([A-Z-]+)/.exec(stderr) ?? [];
    if (code !== undefined) shown.resolve(code);
  });
  const ended = once(child, 'close');
  ended.then(() => shown.reject(new Error(stderr))).catch(() => undefined);
  const headers = { cookie, origin: BASE_URL };
  const { status } = await post(`/v1/auth/device/${answer}`, { user_code: await shown.promise, ...more }, headers);
  assert.equal(status, 204);
  const [code] = await ended;
  return { code, stderr };
}

async function run(args: string[]): Promise<{ code: number; stdout: string }> {
  const child = start(args);
  const [out, [code]] = await Promise.all([child.stdout.toArray(), once(child, 'close')]);
  return { code, stdout: Buffer.concat(out).toString() };
}

describe('sandbar login', () => {
  it('gets a key that the other commands use until the logout', async () => {
    const { code, stderr } = await logIn('approve', { scope: 'read' });
    assert.equal(code, 0, stderr);
    const whoami = await run(['whoami']);
    assert.equal(whoami.code, 0);
    assert.match(whoami.stdout, new RegExp(`^key +from ${folder}/sandbar/credentials.json$`, 'm'));
    const refused = await run(['api', 'POST', '/v1/machines', '--data', '{}']);
    assert.equal(JSON.parse(refused.stdout).code, 'forbidden', 'the scope is the one that the person chose');
    assert.equal((await run(['logout'])).code, 0);
    assert.notEqual((await run(['whoami'])).code, 0);
  });

  it('ends with an error when its code is denied', async () => {
    const { code, stderr } = await logIn('deny', {});
    assert.notEqual(code, 0);
    assert.match(stderr, /^sandbar: the login was denied in the dashboard$/m);
  });
});
