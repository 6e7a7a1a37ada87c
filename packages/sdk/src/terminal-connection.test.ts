// Tests the client of terminals. A fake service in this process behaves as each test says.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { after, beforeEach, describe, it } from 'node:test';
import { type WebSocket, WebSocketServer } from 'ws';
import { Client } from './client.ts';
import { SandbarError } from './service-errors.ts';
import type { OpenTerminalOptions } from './terminals.ts';

const TERMINAL_ID = '019b7c21-3c4d-7e5f-8a6b-7c8d9e0f1a2b';
/** The bodies of the requests for tickets so far. */
let asked: Record<string, unknown>[] = [];
/** The errors with which the service refuses the next requests for a WebSocket. */
let refusals: [code: string, status: number][] = [];
let sockets: WebSocket[] = [];
/** Called for each new connection with the number of earlier connections. */
let onConnection: (socket: WebSocket, index: number) => void = () => {};

const webSockets = new WebSocketServer({ noServer: true });
const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
  let text = '';
  for await (const chunk of request) text += chunk;
  asked.push(JSON.parse(text));
  const ws_path = '/v1/machines/m/terminal';
  response.writeHead(201, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ ticket: 't', machine_id: 'm', terminal_id: TERMINAL_ID, ws_path, expires_at: '' }));
});
server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Buffer) => {
  const refusal = refusals.shift();
  if (refusal) {
    const body = JSON.stringify({ code: refusal[0], detail: `it is ${refusal[0]}` });
    socket.end(
      `HTTP/1.1 ${refusal[1]} No\r\ncontent-type: application/json\r\ncontent-length: ${body.length}\r\nx-request-id: r\r\n\r\n${body}`,
    );
    return;
  }
  webSockets.handleUpgrade(request, socket, head, (webSocket) => {
    sockets.push(webSocket);
    onConnection(webSocket, sockets.length - 1);
  });
});
server.listen(0, '127.0.0.1');
await once(server, 'listening');
const baseUrl = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
after(() => {
  for (const socket of sockets) socket.terminate();
  server.close();
});
beforeEach(() => {
  for (const socket of sockets) socket.terminate();
  sockets = [];
  asked = [];
  refusals = [];
  onConnection = () => {};
});

const open = (options: OpenTerminalOptions = {}, retryForSec = 20) =>
  new Client({ baseUrl, apiKey: 'k', retryForSec }).terminals.open('m', options);
const start = (socket: WebSocket, offset: number) =>
  socket.send(JSON.stringify({ type: 'start', terminal_id: TERMINAL_ID, offset }));
const exit = (socket: WebSocket, code: number | null, signal: string | null = null) => {
  socket.send(JSON.stringify({ type: 'exit', code, signal }));
  socket.close(1000);
};
async function readAll(output: AsyncIterable<Uint8Array>): Promise<string> {
  let text = '';
  for await (const bytes of output) text += Buffer.from(bytes);
  return text;
}

describe('a terminal of the client', () => {
  it('yields the output until the program ends, and says how it ended', async () => {
    onConnection = (socket) => {
      start(socket, 0);
      socket.send(Buffer.from('hello '));
      socket.send(Buffer.from('world'));
      exit(socket, 7);
    };
    const terminal = await open({ cols: 100, rows: 30, command: ['sh'] });
    assert.equal(terminal.id, TERMINAL_ID);
    assert.equal(await readAll(terminal), 'hello world');
    assert.deepEqual(await terminal.exit, { type: 'exit', code: 7, signal: null });
    assert.deepEqual(asked, [{ cols: 100, rows: 30, command: ['sh'] }]);
  });

  it('connects again when its connection breaks, and yields every byte once', async () => {
    const whole = Array.from({ length: 5000 }, (_, line) => `line ${line}\n`).join('');
    const events: string[] = [];
    onConnection = (socket, index) => {
      // Each connection first repeats 3000 bytes of old output, then breaks before all new output is sent.
      const from = Math.max(0, index * 9000 - 3000);
      const to = index === 5 ? whole.length : (index + 1) * 9000;
      start(socket, from);
      for (let at = from; at < to; at += 1000) socket.send(Buffer.from(whole.slice(at, Math.min(at + 1000, to))));
      if (index === 5) exit(socket, 0);
      else if (index % 2 === 0) socket.close(1012, 'shutting_down: restart');
      else socket.send(Buffer.alloc(0), () => setImmediate(() => socket.terminate()));
    };
    const terminal = await open({
      onDisconnect: (reason) => events.push(reason),
      onReconnect: () => events.push('again'),
    });
    assert.equal(await readAll(terminal), whole);
    assert.equal(sockets.length, 6);
    assert.equal(events.length, 10);
    assert.deepEqual(events.slice(0, 2), ['shutting_down: restart', 'again']);
    assert.deepEqual(asked.slice(1), Array(5).fill({ terminal_id: TERMINAL_ID }));
  });

  it('reports how much output is lost, and continues after the gap', async () => {
    const gaps: number[] = [];
    const connections: [offset: number, output: string][] = [
      [0, 'before'],
      [1000, 'after'],
      [1002, 'ter it'],
    ];
    onConnection = (socket, index) => {
      const [offset, output] = connections[index] ?? [0, 'too many connections'];
      start(socket, offset);
      socket.send(Buffer.from(output));
      if (index < 2) socket.close(4408, 'too_slow');
      else exit(socket, null, 'SIGHUP');
    };
    const terminal = await open({ onGap: (bytes) => gaps.push(bytes) });
    assert.equal(await readAll(terminal), 'beforeafter it');
    assert.deepEqual(gaps, [1000 - 'before'.length]);
    assert.deepEqual(await terminal.exit, { type: 'exit', code: null, signal: 'SIGHUP' });
  });

  it('sends input in order, including input that was written without a connection', async () => {
    let typed = '';
    let close: (() => void) | undefined;
    onConnection = (socket, index) => {
      start(socket, 0);
      socket.on('message', (data: Buffer, isBinary) => {
        if (isBinary) typed += data;
        if (typed.endsWith('end')) exit(socket, 0);
      });
      if (index === 0) close = () => socket.close(1013);
    };
    const { promise: broken, resolve } = Promise.withResolvers<void>();
    const terminal = await open({ onDisconnect: () => resolve() });
    await terminal.write('one ');
    close?.();
    await broken;
    void terminal.write('two ');
    void terminal.write(Buffer.from('three '));
    await terminal.write('x'.repeat(200_000));
    await terminal.write('end');
    await terminal.exit;
    assert.equal(typed, `one two three ${'x'.repeat(200_000)}end`);
    await terminal.write('nobody is there any more');
  });

  it('sends a new size at once, and with the next request for a ticket', async () => {
    const sizes: unknown[] = [];
    const { promise: two, resolve } = Promise.withResolvers<void>();
    onConnection = (socket, index) => {
      start(socket, 0);
      socket.on('message', (data: Buffer) => {
        sizes.push(JSON.parse(data.toString()));
        if (index === 0) socket.close(1012);
      });
      if (index === 1) resolve();
    };
    const terminal = await open({ cols: 80, rows: 24, onReconnect: () => {} });
    terminal.resize(100, 40);
    await two;
    assert.deepEqual(sizes, [{ type: 'resize', cols: 100, rows: 40 }]);
    assert.deepEqual(asked[1], { terminal_id: TERMINAL_ID, cols: 100, rows: 40 });
    terminal.leave();
    assert.equal(await terminal.exit, undefined);
  });

  it('reads no more from the service while the caller reads nothing', async () => {
    const total = 32 * 1024 * 1024;
    onConnection = (socket) => {
      start(socket, 0);
      for (let at = 0; at < total; at += 64 * 1024) socket.send(Buffer.alloc(64 * 1024));
      exit(socket, 0);
    };
    const terminal = await open();
    const [socket] = sockets;
    let before = -1;
    for (let same = 0; same < 5; ) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      same = socket?.bufferedAmount === before ? same + 1 : 0;
      before = socket?.bufferedAmount ?? 0;
    }
    assert(before > total / 2, `${before} bytes wait at the service`);
    let read = 0;
    for await (const bytes of terminal) read += bytes.length;
    assert.equal(read, total);
  });

  it('throws the error when the service refuses a connection, both at first and later', async () => {
    refusals = [['conflict', 409]];
    await assert.rejects(
      open(),
      (error: SandbarError) => error instanceof SandbarError && error.status === 409 && error.requestId === 'r',
    );
    refusals = [['not_found', 404]];
    await assert.rejects(open({ terminal_id: TERMINAL_ID }), { code: 'not_found' });
    onConnection = (socket) => {
      start(socket, 0);
      socket.send(Buffer.from('seen'));
      refusals = [['conflict', 409]];
      socket.close(4409, 'conflict: The machine is stopped.');
    };
    const terminal = await open();
    let text = '';
    await assert.rejects(
      async () => {
        for await (const bytes of terminal) text += Buffer.from(bytes);
      },
      { code: 'conflict' },
    );
    assert.equal(text, 'seen');
    await assert.rejects(terminal.exit, { code: 'conflict' });
  });

  it('tries again while the service is unavailable, and joins the terminal that its first attempt may have opened', async () => {
    refusals = [
      ['host_unavailable', 503],
      ['unauthenticated', 401],
      ['not_found', 404],
    ];
    onConnection = (socket) => {
      start(socket, 0);
      exit(socket, 0);
    };
    const terminal = await open({ command: ['top'], cols: 90, rows: 30 });
    await terminal.exit;
    const join = { terminal_id: TERMINAL_ID, cols: 90, rows: 30 };
    const request = { command: ['top'], cols: 90, rows: 30 };
    assert.deepEqual(asked, [request, join, join, request]);
  });

  it('gives up when the time for retries is over', async () => {
    onConnection = (socket) => {
      start(socket, 0);
      refusals = Array(100).fill(['host_unavailable', 503]);
      socket.close(1013, 'host_unavailable');
    };
    const terminal = await open({}, 1);
    await assert.rejects(readAll(terminal), { code: 'host_unavailable' });
  });

  it('ends for the caller after an abort, even without a connection', async () => {
    const { promise: broken, resolve } = Promise.withResolvers<void>();
    onConnection = (socket) => {
      start(socket, 0);
      refusals = Array(1000).fill(['host_unavailable', 503]);
      socket.terminate();
    };
    const abort = new AbortController();
    const terminal = await open({ signal: abort.signal, onDisconnect: () => resolve() });
    await broken;
    abort.abort();
    assert.equal(await readAll(terminal), '');
    assert.equal(await terminal.exit, undefined);
    await assert.rejects(open({ signal: AbortSignal.abort(new Error('before')) }), /before/);
  });

  it('does not connect again after it has sent an invalid message', async () => {
    onConnection = (socket) => {
      start(socket, 0);
      socket.close(4400, 'validation_error: no');
    };
    const terminal = await open();
    await assert.rejects(readAll(terminal), /4400.*validation_error/);
    assert.equal(sockets.length, 1);
  });
});
