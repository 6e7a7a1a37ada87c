// Tests the MCP server over standard input and output. The server runs in its own process.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { after, afterEach, before, describe, it } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client as McpClient } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { type FakeService, startFakeService } from './testing/fake-service.ts';
import { jobOf, MACHINE_ID, machineOf } from './testing/records.ts';

const ENTRY = fileURLToPath(new URL('testing/stdio-entry.ts', import.meta.url));

let service: FakeService;
before(async () => {
  service = await startFakeService();
});
after(() => service.close());
afterEach(() => service.reset());

const env = () => ({ ...process.env, SANDBAR_BASE_URL: service.baseUrl, SANDBAR_API_KEY: 'sbr_key' });

/** Starts the server. The test itself writes and reads its messages. */
function start() {
  const child = spawn(process.execPath, [ENTRY], { env: env(), stdio: ['pipe', 'pipe', 'pipe'] });
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  const said: string[] = [];
  return {
    child,
    said,
    send: (message: object | string) =>
      child.stdin.write(`${typeof message === 'string' ? message : JSON.stringify({ jsonrpc: '2.0', ...message })}\n`),
    /** Returns the next line of standard output as a message. */
    receive: async () => {
      const { value = '' } = await lines.next();
      said.push(value);
      return JSON.parse(value);
    },
    exit: once(child, 'exit'),
  };
}

const INITIALIZE = {
  id: 1,
  method: 'initialize',
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
};
const EXEC = {
  id: 2,
  method: 'tools/call',
  params: { name: 'exec', arguments: { machine_id: MACHINE_ID, command: 'x' } },
};

/** Makes the fake service serve a job that runs until it is cancelled. `begun` resolves when the job runs. */
function serveEndlessJob() {
  const begun = Promise.withResolvers<void>();
  const cancelled = Promise.withResolvers<void>();
  service.on('POST /v1/machines/*/execs', () => {
    begun.resolve();
    return { status: 201, body: jobOf({ status: 'running', exit_code: null }) };
  });
  service.on('GET /v1/machines/*/execs/*', async () => {
    await cancelled.promise;
    return { body: jobOf({ status: 'canceled', exit_code: null, signal: 'SIGKILL' }) };
  });
  service.on('POST /v1/machines/*/execs/*/cancel', () => {
    cancelled.resolve();
    return { body: jobOf({ status: 'canceled', exit_code: null, signal: 'SIGKILL' }) };
  });
  return { begun: begun.promise, wasCancelled: () => service.requests.some(({ path }) => path.endsWith('/cancel')) };
}

describe('serveStdio', () => {
  for (const mode of ['legacy', 'auto'] as const) {
    it(`serves a client of version mode "${mode}", with the API key of the environment`, async () => {
      service.on('GET /v1/machines/*', () => ({ body: machineOf() }));
      const agent = new McpClient({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
      const transport = { command: process.execPath, args: [ENTRY], env: env() as Record<string, string> };
      await agent.connect(new StdioClientTransport(transport));
      assert.match(agent.getInstructions() ?? '', /isolated Linux machines/);
      assert.equal((await agent.listTools()).tools.length, 18);
      const result = await agent.callTool({ name: 'machine_get', arguments: { machine_id: MACHINE_ID } });
      assert.equal((result.structuredContent as { state: string }).state, 'running');
      assert.equal(service.requests[0]?.headers.get('authorization'), 'Bearer sbr_key');
      await agent.close();
    });
  }

  it('writes only messages to standard output, even after input that is not a message', async () => {
    const server = start();
    server.send('this is no message');
    server.send(INITIALIZE);
    assert.equal((await server.receive()).result.serverInfo.name, 'sandbar');
    server.send({ id: 3, method: 'tools/list' });
    assert.equal((await server.receive()).id, 3);
    server.child.stdin.end();
    assert.deepEqual(await server.exit, [0, null]);
    assert.equal(server.said.length, 2);
  });

  for (const [what, end] of [
    ['the client closes standard input', (server: ReturnType<typeof start>) => server.child.stdin.end()],
    ['the process is told to end', (server: ReturnType<typeof start>) => server.child.kill('SIGTERM')],
  ] as const) {
    it(`cancels the running job and ends when ${what}`, async () => {
      const job = serveEndlessJob();
      const server = start();
      server.send(INITIALIZE);
      await server.receive();
      server.send({ method: 'notifications/initialized' });
      server.send(EXEC);
      await job.begun;
      end(server);
      assert.deepEqual(await server.exit, [0, null]);
      assert.ok(job.wasCancelled());
    });
  }
});
