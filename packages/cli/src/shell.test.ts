// Tests terminals of the CLI as a user sees them: the CLI runs in a pseudo-terminal of its own, against a small server
// that stands in for the API.
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { after, beforeEach, describe, it } from 'node:test';
import type { WebSocket } from 'ws';

const require = createRequire(new URL('../../sdk/package.json', import.meta.url));
const { WebSocketServer }: typeof import('ws') = require('ws');
const CLI = new URL('../bin/sandbar.mjs', import.meta.url).pathname;
const MACHINE = '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20';
const TERMINAL_ID = '019b7c21-3c4d-7e5f-8a6b-7c8d9e0f1a2b';

let calls: string[] = [];
/** The bodies of the requests for tickets. */
let asked: Record<string, unknown>[] = [];
/** What the terminal has received: all input as text, and the sizes. */
let input = '';
let sizes: string[] = [];
/** Called after each input with all input so far. It may answer on the socket. */
let onInput: (socket: WebSocket, input: string) => void = () => {};

const webSockets = new WebSocketServer({ noServer: true });
const server = createServer(async (request, response) => {
  let text = '';
  for await (const chunk of request) text += chunk;
  const { method, url = '' } = request;
  calls.push(`${method} ${url}`);
  const answer = (status: number, body: object) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  if (!url.endsWith('/terminal-session'))
    return answer(method === 'POST' ? 201 : 200, { id: MACHINE, state: 'running' });
  asked.push(JSON.parse(text));
  const ws_path = `/v1/machines/${MACHINE}/terminal`;
  answer(201, { ticket: 't', machine_id: MACHINE, terminal_id: TERMINAL_ID, ws_path, expires_at: '' });
});
server.on('upgrade', (request, socket, head) => {
  webSockets.handleUpgrade(request, socket, head, (webSocket) => {
    webSocket.send(JSON.stringify({ type: 'start', terminal_id: TERMINAL_ID, offset: 0 }));
    webSocket.send(Buffer.from('prompt> '));
    webSocket.on('message', (data: Buffer, isBinary) => {
      if (isBinary) input += data;
      else sizes.push(data.toString());
      onInput(webSocket, input);
    });
  });
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const { port } = server.address() as AddressInfo;
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  calls = [];
  asked = [];
  input = '';
  sizes = [];
  onInput = () => {};
});

const exit = (socket: WebSocket, code: number | null, signal: string | null = null) => {
  socket.send(JSON.stringify({ type: 'exit', code, signal }));
  socket.close(1000);
};
const env = {
  ...process.env,
  SANDBAR_HOME: `${tmpdir()}/no-such-home`,
  SANDBAR_BASE_URL: `http://127.0.0.1:${port}`,
  SANDBAR_API_KEY: 'k',
  TERM: 'vt100',
};

/** Runs a shell command line in a pseudo-terminal, and types `keys` at the prompt of the terminal. */
async function inTerminal(
  line: string,
  keys: string,
  onText: (text: string) => void = () => {},
): Promise<{ code: number; text: string }> {
  const child = spawn('script', ['-qefc', `stty cols 90 rows 25; ${line}`, '/dev/null'], { env });
  let text = '';
  let isTyped = false;
  child.stdout.on('data', (chunk) => {
    text += chunk;
    onText(text);
    if (isTyped || !text.includes('prompt> ')) return;
    isTyped = true;
    child.stdin.write(keys);
  });
  const [code] = await once(child, 'close');
  return { code, text };
}
const sandbar = (args: string) => `'${process.execPath}' '${CLI}' ${args}`;

describe('sandbar shell', () => {
  it('passes every key on, shows the output as it is, and ends with the exit code of the shell', async () => {
    onInput = (socket, typed) => {
      if (!typed.endsWith('end')) return;
      socket.send(Buffer.from('one\ntwo'));
      exit(socket, 7);
    };
    const { code, text } = await inTerminal(
      sandbar(`shell ${MACHINE} --env A=b --user me --cwd /srv`),
      '\u0003\u001b[Aü\u0004 end',
    );
    assert.equal(code, 7);
    assert.equal(input, '\u0003\u001b[Aü\u0004 end');
    // The line feed arrives without a carriage return.
    assert(text.endsWith('prompt> one\ntwo'), JSON.stringify(text));
    assert.deepEqual(asked, [{ env: { TERM: 'vt100', A: 'b' }, user: 'me', cwd: '/srv', cols: 90, rows: 25 }]);
  });

  it('gives the terminal its settings back', async () => {
    onInput = (socket) => exit(socket, null, 'SIGHUP');
    const { text } = await inTerminal(`stty -g; ${sandbar(`shell ${MACHINE}`)}; echo "ended $?"; stty -g`, 'x');
    const settings = text.match(/^[0-9a-f]+(:[0-9a-f]+){10,}/gm);
    assert.equal(settings?.length, 2);
    assert.equal(settings[0], settings[1]);
    assert.match(text, /ended 129/);
  });

  it('leaves with ~. and says how to come back', async () => {
    const { code, text } = await inTerminal(sandbar(`shell ${MACHINE}`), 'ls\r~.never');
    assert.equal(code, 0);
    assert.equal(input, 'ls\r');
    assert.match(text, new RegExp(`sandbar shell ${MACHINE} --join ${TERMINAL_ID}`));
    onInput = (socket) => exit(socket, 0);
    await inTerminal(sandbar(`shell ${MACHINE} --join ${TERMINAL_ID}`), 'x');
    assert.deepEqual(asked[1], { terminal_id: TERMINAL_ID, cols: 90, rows: 25 });
  });

  it('tells the terminal when the screen changes its size', async () => {
    onInput = (socket) => {
      if (sizes.includes(WANTED)) exit(socket, 0);
      else if (sizes.length === 0) resize();
    };
    // `stty` sets columns and rows one after the other, so another size may come before this one.
    const WANTED = '{"type":"resize","cols":100,"rows":30}';
    let screen = '';
    const resize = () => spawnSync('stty', ['-F', screen, 'cols', '100', 'rows', '30']);
    const onText = (text: string) => {
      screen = /\/dev\/pts\/\d+/.exec(text)?.[0] ?? '';
    };
    await inTerminal(`tty; ${sandbar(`shell ${MACHINE}`)}`, 'x', onText);
    assert.equal(sizes.at(-1), WANTED);
  });

  it('needs a terminal, and takes no command together with --join', async () => {
    const piped = spawn(process.execPath, [CLI, 'shell', MACHINE], { env });
    let stderr = '';
    piped.stderr.on('data', (chunk) => {
      stderr += chunk;
    });
    assert.deepEqual((await once(piped, 'close'))[0], 2);
    assert.match(stderr, /must be a terminal/);
    assert.deepEqual(calls, []);
    const { code, text } = await inTerminal(sandbar(`shell ${MACHINE} --join t1 -- ls`), '');
    assert.equal(code, 2);
    assert.match(text, /--join takes no command/);
  });
});

describe('sandbar run -it', () => {
  it('runs the command in a terminal of a machine of its own, which is destroyed', async () => {
    onInput = (socket) => exit(socket, 3);
    const { code } = await inTerminal(sandbar('run -it -- bash -l'), 'x');
    assert.equal(code, 3);
    assert.deepEqual(asked, [{ command: ['bash', '-l'], env: { TERM: 'vt100' }, cols: 90, rows: 25 }]);
    assert.deepEqual(calls, [
      'POST /v1/machines',
      `POST /v1/machines/${MACHINE}/terminal-session`,
      `DELETE /v1/machines/${MACHINE}?preserve_storage=false`,
    ]);
  });

  it('refuses options that a terminal does not have, before it creates a machine', async () => {
    const { code, text } = await inTerminal(sandbar('run -it --timeout 5 -- bash'), '');
    assert.equal(code, 2);
    assert.match(text, /--timeout cannot be used with --tty/);
    assert.deepEqual(calls, []);
  });
});

describe('sandbar exec -it', () => {
  it('runs the command in a terminal of the machine', async () => {
    onInput = (socket) => exit(socket, 0);
    const { code } = await inTerminal(sandbar(`exec ${MACHINE} -t --user root -- top`), 'x');
    assert.equal(code, 0);
    assert.deepEqual(asked, [{ command: ['top'], user: 'root', env: { TERM: 'vt100' }, cols: 90, rows: 25 }]);
  });
});
