// Tests `sandbar login`, `logout` and `whoami` against a small HTTP server that stands in for the API.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { answerJson, CLI, environment, makeFolder, run, startServer } from './test-support.ts';

const folder = makeFolder();
const config = path.join(folder, 'config');
const file = path.join(config, 'sandbar', 'credentials.json');
const account = { id: 'a1', email: 'me@example.com', tier: 'free', billing_mode: 'unmetered' };

let polls: (string | { scope: string })[];
let names: string[];
let expiresIn: number;
let keys: string[];

const baseUrl = await startServer(({ url, body, headers }, response) => {
  if (url === '/v1/account') {
    keys.push(headers.authorization ?? '');
    return answerJson(response, 200, account);
  }
  const given = JSON.parse(body.toString());
  if (url === '/v1/auth/device/code') {
    names.push(given.name);
    return answerJson(response, 200, {
      device_code: 'sbd_secret',
      user_code: 'WDJB-MJHT',
      verification_uri: 'https://service.test/device',
      verification_uri_complete: 'https://service.test/device?user_code=WDJB-MJHT',
      expires_in: expiresIn,
      interval: 0,
    });
  }
  assert.deepEqual([url, given], ['/v1/auth/device/token', { device_code: 'sbd_secret' }]);
  const next = polls.shift() ?? 'authorization_pending';
  if (typeof next === 'string') return answerJson(response, next === 'internal_error' ? 500 : 400, { code: next });
  answerJson(response, 200, { id: 'k1', name: 'laptop', scope: next.scope, key: 'sbr_new', expires_at: null });
});

beforeEach(() => {
  polls = ['authorization_pending', { scope: 'full' }];
  names = [];
  keys = [];
  expiresIn = 600;
  rmSync(config, { recursive: true, force: true });
});

const sandbar = (args: string[], more: Record<string, string | undefined> = {}) =>
  run(process.execPath, [CLI, ...args], environment({ XDG_CONFIG_HOME: config, DISPLAY: undefined, ...more }));
const stored = () => JSON.parse(readFileSync(file, 'utf8'));
const modeOf = (place: string) => (statSync(place).mode & 0o777).toString(8);

describe('sandbar login', () => {
  it('shows the address and the code, polls until the approval, and keeps the key for its owner alone', async () => {
    const { code, stdout, stderr } = await sandbar(['login', `${baseUrl}/`, '--name', 'laptop']);
    assert.equal(code, 0, stderr);
    assert.match(stderr, /https:\/\/service.test\/device\?user_code=WDJB-MJHT/);
    assert.match(stderr, /WDJB-MJHT\b/);
    assert.equal(stdout.toString(), `Logged in to ${baseUrl} with the key "laptop" (full), kept in ${file}.\n`);
    assert.deepEqual([names, polls], [['laptop'], []]);
    assert.deepEqual(stored(), { base_url: baseUrl, api_key: 'sbr_new' });
    assert.deepEqual([modeOf(path.dirname(file)), modeOf(file)], ['700', '600']);
    assert.deepEqual(readdirSync(path.dirname(file)), ['credentials.json'], 'no temporary file is left');
    await sandbar(['whoami']);
    assert.deepEqual(keys, ['Bearer sbr_new']);
  });

  it('replaces an older login, and closes its folder to others', async () => {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, '{}', { mode: 0o644 });
    chmodSync(path.dirname(file), 0o755);
    assert.equal((await sandbar(['login', baseUrl])).code, 0);
    assert.deepEqual([stored().api_key, modeOf(path.dirname(file)), modeOf(file)], ['sbr_new', '700', '600']);
  });

  it('without an address it uses the address of the other commands, and fails when they have none', async () => {
    assert.equal((await sandbar(['login'], { SANDBAR_BASE_URL: baseUrl })).code, 0);
    assert.equal(stored().base_url, baseUrl);
    polls = [{ scope: 'full' }];
    assert.equal((await sandbar(['login'])).code, 0, 'the address of the last login');
    rmSync(config, { recursive: true });
    const none = await sandbar(['login']);
    assert.equal(none.code, 2);
    assert.match(none.stderr, /^sandbar: name the address of the service: sandbar login URL .*\n$/);
  });

  for (const [answer, says] of [
    [
      'expired_token',
      /^sandbar: the code has expired: run sandbar login again for a new one\. .* revoke it in the dashboard, under API keys$/m,
    ],
    ['access_denied', /^sandbar: the login was denied in the dashboard$/m],
  ] as const) {
    it(`${answer} is an error in plain words, and nothing is kept`, async () => {
      polls = ['authorization_pending', answer];
      const { code, stderr } = await sandbar(['login', baseUrl]);
      assert.notEqual(code, 0);
      assert.match(stderr, says);
      assert.equal(existsSync(file), false);
    });
  }

  it('--scope refuses a key of another scope', async () => {
    const { code, stderr } = await sandbar(['login', baseUrl, '--scope', 'read']);
    assert.notEqual(code, 0);
    assert.match(stderr, /with the scope read/);
    assert.match(stderr, /^sandbar: the approved key has the scope full, not read, and was not kept: revoke the key/m);
    assert.equal(existsSync(file), false);
    polls = [{ scope: 'read' }];
    assert.equal((await sandbar(['login', baseUrl, '--scope', 'read'])).code, 0);
  });

  it('opens the browser where there is a screen, unless --no-browser', async () => {
    const opened = path.join(folder, 'opened');
    const programs = path.join(folder, 'bin');
    mkdirSync(programs, { recursive: true });
    writeFileSync(
      path.join(programs, 'xdg-open'),
      `#!/bin/sh\necho "$1" > ${opened}.new\nmv ${opened}.new ${opened}\n`,
      {
        mode: 0o755,
      },
    );
    const screen = { PATH: `${programs}:${process.env.PATH}`, DISPLAY: ':0' };
    await sandbar(['login', baseUrl, '--no-browser'], screen);
    polls = [{ scope: 'full' }];
    await sandbar(['login', baseUrl], { ...screen, DISPLAY: '' });
    assert.equal(existsSync(opened), false);
    polls = [{ scope: 'full' }];
    await sandbar(['login', baseUrl], screen);
    while (!existsSync(opened)) await new Promise((resolve) => setTimeout(resolve, 10));
    assert.equal(readFileSync(opened, 'utf8'), 'https://service.test/device?user_code=WDJB-MJHT\n');
  });

  it('Ctrl-C ends it with 130', async () => {
    polls = [];
    const env = environment({ XDG_CONFIG_HOME: config, DISPLAY: undefined });
    const child = spawn(process.execPath, [CLI, 'login', baseUrl], { env, stdio: ['ignore', 'ignore', 'pipe'] });
    await once(child.stderr, 'data');
    child.kill('SIGINT');
    const [code] = await once(child, 'close');
    assert.equal(code, 130);
    assert.equal(existsSync(file), false);
  });

  it('says that SANDBAR_API_KEY takes precedence over the login', async () => {
    const { stderr } = await sandbar(['login', baseUrl], { SANDBAR_API_KEY: 'other' });
    assert.match(stderr, /^sandbar: SANDBAR_API_KEY is set and goes before this login: unset it$/m);
  });
});

describe('sandbar logout', () => {
  it('removes the file, and says that the key stays valid', async () => {
    await sandbar(['login', baseUrl]);
    const { code, stdout } = await sandbar(['logout']);
    assert.equal(code, 0);
    assert.match(stdout.toString(), /^Removed .*credentials.json. The key stays valid until you revoke it/);
    assert.equal(existsSync(file), false);
    const again = await sandbar(['logout']);
    assert.deepEqual([again.code, again.stdout.toString()], [0, `There is no login: ${file} does not exist.\n`]);
  });
});

describe('sandbar whoami', () => {
  const whoami = async (more: Record<string, string | undefined>) => {
    const { code, stdout, stderr } = await sandbar(['whoami'], more);
    assert.equal(code, 0, stderr);
    return stdout.toString();
  };

  it('shows the account, the service, and where the key came from', async () => {
    const fromVariable = await whoami({ SANDBAR_BASE_URL: baseUrl, SANDBAR_API_KEY: 'k' });
    assert.equal(
      fromVariable,
      `account  me@example.com (a1)\ntier     free, unmetered\nservice  ${baseUrl}\nkey      from SANDBAR_API_KEY\n`,
    );
    const home = path.join(folder, 'home');
    mkdirSync(home, { recursive: true });
    writeFileSync(path.join(home, 'credentials.json'), JSON.stringify({ base_url: baseUrl, api_key: 'k', email: 'e' }));
    assert.match(await whoami({ SANDBAR_HOME: home }), new RegExp(`^key {6}from ${home}/credentials.json$`, 'm'));
    await sandbar(['login', baseUrl]);
    assert.match(await whoami({ SANDBAR_HOME: home }), new RegExp(`^key {6}from ${file}$`, 'm'));
    assert.match(await whoami({ SANDBAR_BASE_URL: `${baseUrl}/` }), new RegExp(`^key {6}from ${file}$`, 'm'));
  });

  it('--json prints the account as the API shows it', async () => {
    const { stdout } = await sandbar(['whoami', '--json'], { SANDBAR_BASE_URL: baseUrl, SANDBAR_API_KEY: 'k' });
    assert.deepEqual(JSON.parse(stdout.toString()), account);
  });
});
