// The reverse proxy of docs/operating.md: its Caddyfile and its settings, with Debian's Caddy in front of a service. The
// certificates are Caddy's own, because the domains of the page are nobody's.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { TERMINAL_PROTOCOL, type TerminalSession } from '@sandbar/contract/terminal.ts';
import { Agent, type BodyInit, fetch, type Response, WebSocket } from 'undici';
import { blocksRunBy } from '../clients/support/doc-examples.ts';
import { ensureCaddy } from '../deploy/support/tools.ts';
import { SMALL } from './support/api.ts';
import { environmentOf, folder, homeOf } from './support/service-process.ts';
import { read, until } from './support/until.ts';

const PAGE = 'docs/operating.md';
const blocks = blocksRunBy(PAGE, 'tests/faults/caddy.long.test.ts');
const home = homeOf('proxied');
const bin = path.join(folder, 'bin');
const env: NodeJS.ProcessEnv = { ...environmentOf('proxied'), PATH: `${bin}:${process.env.PATH}` };
/** Two ports that no service of this file uses. */
const { SANDBAR_LISTEN = '', SANDBAR_METRICS_LISTEN = '' } = environmentOf('ports');
const [httpPort, httpsPort] = [SANDBAR_LISTEN, SANDBAR_METRICS_LISTEN].map((address) => address.split(':').at(-1));
const API = `https://sandbar.example.com:${httpsPort}`;

/** Runs the service's command line with the block of the page before it. */
async function run(script: string): Promise<void> {
  const child = spawn('bash', ['-eu', '-c', script], { stdio: ['ignore', 'ignore', 'pipe'], env });
  const [errors, [code]] = await Promise.all([child.stderr.toArray(), once(child, 'close')]);
  assert.equal(code, 0, `${script}\n${Buffer.concat(errors)}`);
}

const blockOf = (label: string) => blocks.get(label) ?? assert.fail(`${PAGE} has no block "${label}"`);

/** The Caddyfile of the page, with the addresses of this test and with Caddy's own authority. */
function caddyfile(): string {
  const settings = [
    'admin off',
    'local_certs',
    'skip_install_trust',
    `http_port ${httpPort}`,
    `https_port ${httpsPort}`,
  ];
  const ours = blockOf('Caddyfile')
    .replaceAll('127.0.0.1:7070', env.SANDBAR_LISTEN ?? '')
    .replace(/tls \/etc\/caddy\/preview.*/, 'tls internal');
  return `{\n${settings.map((line) => `\t${line}\n`).join('')}\tstorage file_system ${folder}/caddy\n}\n${ours}`;
}

describe('Caddy in front of the service', () => {
  let caddy: ChildProcess | undefined;
  let dispatcher: Agent;
  let key = '';
  let machine: Machine;

  before(async () => {
    mkdirSync(bin);
    symlinkSync(path.resolve(import.meta.dirname, '../../packages/cli/bin/sandbar.mjs'), path.join(bin, 'sandbar'));
    symlinkSync(process.execPath, path.join(bin, 'node'));
    await run(blockOf('start behind a proxy').replaceAll('https://sandbar.example.com', API));
    key = (JSON.parse(read(`${home}/credentials.json`)) as { api_key: string }).api_key;
    const file = path.join(folder, 'Caddyfile');
    writeFileSync(file, caddyfile());
    caddy = spawn(await ensureCaddy(), ['run', '--adapter', 'caddyfile', '--config', file], {
      stdio: ['ignore', 'ignore', 'inherit'],
      env: { PATH: process.env.PATH, HOME: folder },
    });
    const root = path.join(folder, 'caddy/pki/authorities/local/root.crt');
    await until('Caddy has its authority', () => read(root) !== '');
    // All names lead to Caddy.
    const lookup = (_name: string, _options: object, found: (error: null, addresses: object[]) => void) =>
      found(null, [{ address: '127.0.0.1', family: 4 }]);
    dispatcher = new Agent({ connect: { ca: readFileSync(root), lookup: lookup as never } });
    await until('the API answers', async () => (await call('GET', '/v1/account')).status === 200);
    machine = (await (await call('POST', '/v1/machines', SMALL)).json()) as Machine;
  });
  after(async () => {
    caddy?.kill('SIGTERM');
    await dispatcher?.close();
    await run('sandbar uninstall --purge --yes');
  });

  const call = (method: string, at: string, body?: object, headers: Record<string, string> = {}): Promise<Response> => {
    const json = { 'content-type': 'application/json' };
    const content: { body?: BodyInit } = body ? { body: JSON.stringify(body) } : {};
    const all = { authorization: `Bearer ${key}`, ...(body ? json : {}), ...headers };
    return fetch(at.startsWith('https:') ? at : `${API}${at}`, { dispatcher, method, headers: all, ...content });
  };
  const execs = () => `/v1/machines/${machine.id}/execs`;

  it('is believed: a sign-in from the public address gets a cookie for HTTPS only', async () => {
    const { email, password } = JSON.parse(read(`${home}/credentials.json`)) as Record<string, string>;
    const answer = await call('POST', '/v1/auth/sign-in', { email, password }, { origin: API, authorization: '' });
    assert.equal(answer.status, 200, await answer.text());
    assert.match(answer.headers.get('set-cookie') ?? '', /; Secure/);
  });

  it('passes events on as they come', async () => {
    const command = 'echo one; until [ -e /tmp/go ]; do sleep 0.1; done; echo two';
    const { id } = (await (await call('POST', execs(), { command })).json()) as { id: string };
    const stream = await call('GET', `${execs()}/${id}/output`, undefined, { accept: 'text/event-stream' });
    let text = '';
    for await (const chunk of stream.body ?? assert.fail()) {
      const isFirst = text === '';
      text += Buffer.from(chunk as Uint8Array).toString();
      if (isFirst) assert.equal((await call('POST', execs(), { command: 'touch /tmp/go' })).status, 201);
    }
    const output = [...text.matchAll(/"data":"([^"]*)"/g)].map(([, data = '']) =>
      Buffer.from(data, 'base64').toString(),
    );
    assert.equal(output.join(''), 'one\ntwo\n');
  });

  it('passes terminals on', async () => {
    const asked = await call('POST', `/v1/machines/${machine.id}/terminal-session`, {});
    const { ws_path, ticket } = (await asked.json()) as TerminalSession;
    const url = `${API.replace('https', 'wss')}${ws_path}?ticket=${encodeURIComponent(ticket)}`;
    const socket = new WebSocket(url, { dispatcher, protocols: [TERMINAL_PROTOCOL] });
    socket.binaryType = 'arraybuffer';
    let text = '';
    socket.addEventListener('message', ({ data }) => {
      if (data instanceof ArrayBuffer) text += Buffer.from(data).toString();
    });
    await new Promise((resolve, reject) => {
      socket.addEventListener('open', resolve);
      socket.addEventListener('error', reject);
    });
    socket.send(Buffer.from('echo "<$((6 * 7))>"\r'));
    await until('the shell answers', () => text.includes('<42>'));
    socket.close();
  });

  it('passes requests to ports of machines on', async () => {
    await call('POST', execs(), { command: 'cd /etc && exec python3 -m http.server 8000' });
    const at = `https://8000-${machine.id}.preview.example.net:${httpsPort}/hostname`;
    let page = '';
    await until('the port answers', async () => {
      const answer = await call('GET', at, undefined, { authorization: '', 'x-sandbar-key': key });
      page = await answer.text();
      return answer.status === 200;
    });
    assert.notEqual(page.trim(), '');
    assert.equal((await call('GET', at, undefined, { authorization: '' })).status, 401);
  });
});
