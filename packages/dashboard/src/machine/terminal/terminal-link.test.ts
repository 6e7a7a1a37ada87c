// Tests the connection of a terminal with a fake service in this process.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ApiProblem } from '../../api/client.ts';
import type { SessionRequest } from './link-calls.ts';
import { type Joined, type LinkState, TerminalLink } from './terminal-link.ts';

const ID = '019b7c21-3c4d-7e5f-8a6b-7c8d9e0f1a2b';

class FakeSocket extends EventTarget {
  readyState = 1;
  binaryType = '';
  readonly sent: (string | Uint8Array)[] = [];
  send(data: string | Uint8Array): void {
    this.sent.push(data);
  }
  close(code = 1005, reason = ''): void {
    this.dispatchEvent(Object.assign(new Event('close'), { code, reason }));
  }
  receive(data: object | string): void {
    const isText = typeof data === 'object';
    const bytes = isText ? JSON.stringify(data) : new TextEncoder().encode(data).buffer;
    this.dispatchEvent(new MessageEvent('message', { data: bytes }));
  }
}

/**
 * Makes a link with a fake service. `service.existing` is what the list of terminals answers, and `service.failure` is
 * what the next sessions fail with.
 */
function startLink(joined?: Joined) {
  const requests: SessionRequest[] = [];
  const states: LinkState[] = [];
  const pauses: number[] = [];
  const service = { existing: [ID] as string[], failure: undefined as unknown };
  const output: [text: string, isReplay: boolean][] = [];
  const gaps: number[] = [];
  const sockets: FakeSocket[] = [];
  let onSocket = (): void => undefined;
  const link = new TerminalLink(
    {
      createSession: async (body) => {
        requests.push(body);
        if (service.failure) throw service.failure;
        return { ticket: 't', machine_id: 'm', terminal_id: ID, ws_path: '/', expires_at: '' };
      },
      listTerminals: async () => service.existing.map((id) => ({ id })),
      openSocket: () => {
        const socket = new FakeSocket();
        sockets.push(socket);
        queueMicrotask(() => onSocket());
        return socket as unknown as WebSocket;
      },
      sleep: async (ms, signal) => {
        // The time in which output counts as a replay never ends in these tests.
        if (!signal) return new Promise(() => undefined);
        pauses.push(ms);
        await new Promise((resolve) => setImmediate(resolve));
      },
    },
    {
      onState: (state) => states.push(state),
      onOutput: ({ bytes, isReplay }) => output.push([new TextDecoder().decode(bytes), isReplay]),
      onGap: (bytes) => gaps.push(bytes),
    },
    joined,
  );
  const next = () =>
    new Promise<FakeSocket>((resolve) => {
      onSocket = () => resolve(sockets.at(-1) as FakeSocket);
    });
  return { link, requests, states, pauses, service, output, gaps, next };
}

const start = (offset: number) => ({ type: 'start', terminal_id: ID, offset });

describe('the connection of a terminal', () => {
  it('reconnects after a lost connection and shows every byte once', async () => {
    const { link, requests, states, output, next } = startLink();
    let socket = next();
    const run = link.run();
    const first = await socket;
    first.receive(start(0));
    first.receive('hello ');
    socket = next();
    first.close(1006);
    const second = await socket;
    second.receive(start(0));
    second.receive('hello world');
    second.receive({ type: 'exit', code: 3, signal: null });
    second.close(1000);
    await run;
    assert.deepEqual(output, [
      ['hello ', false],
      ['world', false],
    ]);
    assert.deepEqual(requests, [{}, { terminal_id: ID }]);
    assert.deepEqual(
      states.map(({ kind }) => kind),
      ['open', 'cut', 'open', 'exited'],
    );
  });

  it('reports how many bytes are lost when the service has dropped them', async () => {
    const { link, gaps, output, next } = startLink({ id: ID, seen: 0 });
    let socket = next();
    void link.run();
    const first = await socket;
    first.receive(start(0));
    first.receive('abc');
    socket = next();
    first.close(1006);
    const second = await socket;
    second.receive(start(10));
    second.receive('xyz');
    link.leave();
    assert.deepEqual(gaps, [7]);
    assert.deepEqual(output.at(-1), ['xyz', false]);
  });

  it('marks the output that an earlier page has shown as a replay', async () => {
    const { link, output, next } = startLink({ id: ID, seen: 3 });
    const socket = next();
    void link.run();
    const first = await socket;
    first.receive(start(0));
    first.receive('abcdef');
    link.leave();
    assert.deepEqual(output, [
      ['abc', true],
      ['def', false],
    ]);
  });

  it('marks the first output as a replay when it joins a terminal that others used', async () => {
    const { link, output, next } = startLink({ id: ID, seen: undefined });
    const socket = next();
    void link.run();
    const first = await socket;
    first.receive(start(5));
    first.receive('abc');
    link.leave();
    assert.deepEqual(output, [['abc', true]]);
  });

  it('reports that a terminal to join has ended, and opens no new one', async () => {
    const { link, requests, states, service } = startLink({ id: ID, seen: 0 });
    service.existing = [];
    await link.run();
    assert.deepEqual(states, [{ kind: 'gone' }]);
    assert.deepEqual(requests, []);
  });

  it('tries again with growing pauses, until it is refused for good', async () => {
    const { link, requests, states, pauses, service } = startLink();
    service.failure = new ApiProblem(503, 'host_unavailable', 'The host does not answer.', null);
    const run = link.run();
    while (requests.length < 9) await new Promise((resolve) => setImmediate(resolve));
    service.failure = new ApiProblem(403, 'forbidden', 'No.', null);
    await run;
    assert.deepEqual(pauses.slice(0, 8), [250, 500, 1_000, 2_000, 4_000, 8_000, 15_000, 15_000]);
    assert.deepEqual(states.at(-1), { kind: 'refused', reason: 'No.' });
  });

  it('sends the size after each connection, and drops input without one', async () => {
    const { link, requests, next } = startLink();
    link.resize({ cols: 100, rows: 40 });
    link.write(new TextEncoder().encode('lost'));
    const socket = next();
    void link.run();
    const first = await socket;
    first.receive(start(0));
    link.leave();
    assert.deepEqual(requests, [{ cols: 100, rows: 40 }]);
    assert.deepEqual(first.sent, ['{"type":"resize","cols":100,"rows":40}']);
  });
});
