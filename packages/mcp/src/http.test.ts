// Tests the MCP server over HTTP: API keys, sessions, hosts and origins, cancelled calls, and the end of the server.
import assert from 'node:assert/strict';
import { request as httpRequest } from 'node:http';
import { after, afterEach, before, beforeEach, describe, it } from 'node:test';
import { Client as McpClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { type HttpServer, serveHttp } from './http.ts';
import { textOf } from './testing/connect.ts';
import { type FakeService, refused, startFakeService } from './testing/fake-service.ts';
import { jobOf, MACHINE_ID, machineOf } from './testing/records.ts';

const KEYS = ['sbr_one', 'sbr_two'];
const MODES = ['legacy', 'auto'] as const;
const INITIALIZE = {
  ...{ jsonrpc: '2.0', id: 1, method: 'initialize' },
  params: { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
};

let service: FakeService;
let server: HttpServer;
before(async () => {
  service = await startFakeService();
});
after(() => service.close());
beforeEach(async () => {
  service.on('GET /v1/account', ({ headers }) => {
    const [, key = ''] = headers.get('authorization')?.split(' ') ?? [];
    return KEYS.includes(key) ? {} : refused(401, 'unauthenticated', 'Unknown key.');
  });
  service.on('GET /v1/machines/*', () => ({ body: machineOf() }));
  server = await serveHttp({ port: 0, baseUrl: service.baseUrl });
});
afterEach(async () => {
  await server.close();
  service.reset();
});

async function connect(apiKey: string, mode: (typeof MODES)[number] = 'legacy') {
  const agent = new McpClient({ name: 'test', version: '1' }, { versionNegotiation: { mode } });
  const headers = { authorization: `Bearer ${apiKey}` };
  const transport = new StreamableHTTPClientTransport(new URL(server.url), { requestInit: { headers } });
  await agent.connect(transport);
  return { agent, transport };
}

/** Sends a message as a client would. It does not use `fetch`, because `fetch` cannot set the header Host. */
function post(headers: Record<string, string>, message: object = INITIALIZE, path?: string) {
  return new Promise<{ status: number; headers: Record<string, unknown>; body: string }>((resolve, reject) => {
    const all = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers };
    const request = httpRequest(path ? new URL(path, server.url) : server.url, { method: 'POST', headers: all });
    request.on('error', reject).on('response', async (response) => {
      let body = '';
      for await (const chunk of response) body += chunk;
      resolve({ status: response.statusCode ?? 0, headers: response.headers, body });
    });
    request.end(JSON.stringify(message));
  });
}

const authorization = 'Bearer sbr_one';
const getMachine = (agent: McpClient) => agent.callTool({ name: 'machine_get', arguments: { machine_id: MACHINE_ID } });

describe('the API key', () => {
  it('is required', async () => {
    for (const headers of [{}, { authorization: 'Basic abc' }, { authorization: 'Bearer other' }]) {
      const answer = await post(headers as Record<string, string>);
      assert.equal(answer.status, 401);
      assert.match(String(answer.headers['www-authenticate']), /^Bearer/);
      assert.match(answer.body, /Authorization: Bearer sbr_/);
    }
    assert.equal(service.requests.length, 0);
  });

  it('is refused when the service does not know it; a valid key is checked once a minute', async () => {
    assert.equal((await post({ authorization: 'Bearer sbr_wrong' })).status, 401);
    for (const mode of MODES) await assert.rejects(connect('sbr_wrong', mode));
    const before = service.requests.length;
    for (let at = 0; at < 3; at++) assert.equal((await post({ authorization })).status, 200);
    assert.equal(service.requests.length, before + 1);
  });

  it('gets status 503 when the service does not answer', async () => {
    const lonely = await serveHttp({ port: 0, baseUrl: 'http://127.0.0.1:1' });
    const answer = await fetch(lonely.url, { method: 'POST', headers: { authorization }, body: '{}' });
    assert.equal(answer.status, 503);
    await lonely.close();
  });

  for (const mode of MODES) {
    it(`of each caller is sent to the service ("${mode}")`, async () => {
      const agents = await Promise.all(KEYS.map((key) => connect(key, mode)));
      await Promise.all(agents.map(({ agent }) => getMachine(agent)));
      const used = service.requests.filter(({ path }) => path.startsWith('/v1/machines/'));
      assert.deepEqual(
        used.map(({ headers }) => headers.get('authorization')).sort(),
        KEYS.map((key) => `Bearer ${key}`),
      );
      await Promise.all(agents.map(({ agent }) => agent.close()));
    });
  }
});

describe('a session', () => {
  it('belongs to the key that opened it', async () => {
    const { agent, transport } = await connect('sbr_one');
    const session = { 'mcp-session-id': transport.sessionId ?? '', 'mcp-protocol-version': '2025-06-18' };
    const list = { jsonrpc: '2.0', id: 7, method: 'tools/list' };
    assert.equal((await post({ authorization, ...session }, list)).status, 200);
    assert.equal((await post({ authorization: 'Bearer sbr_two', ...session }, list)).status, 404);
    assert.equal((await post({ authorization, 'mcp-session-id': 'made-up' }, list)).status, 404);
    assert.equal((await post({ authorization }, list)).status, 400);
    await transport.terminateSession();
    assert.equal((await post({ authorization, ...session }, list)).status, 404);
    await agent.close();
  });

  it('ends as the least recently used when its key opens too many sessions', async () => {
    const idOf = async (headers = { authorization }) => String((await post(headers)).headers['mcp-session-id']);
    const other = await idOf({ authorization: 'Bearer sbr_two' });
    const first = await idOf();
    const second = await idOf();
    const use = async (id: string, key = authorization) =>
      (await post({ authorization: key, 'mcp-session-id': id }, { jsonrpc: '2.0', id: 1, method: 'ping' })).status;
    assert.equal(await use(first), 200);
    for (let opened = 2; opened <= 64; opened++) await idOf();
    assert.deepEqual([await use(first), await use(second), await use(other, 'Bearer sbr_two')], [200, 404, 200]);
  });
});

describe('a request of a web page', () => {
  it('is refused when its Host or Origin is foreign', async () => {
    assert.equal((await post({ authorization, host: 'evil.example' })).status, 403);
    assert.equal((await post({ authorization, origin: 'http://evil.example' })).status, 403);
    assert.equal((await post({ authorization, origin: 'null' })).status, 403);
    assert.equal((await post({ authorization, host: 'localhost:1', origin: 'http://localhost:5173' })).status, 200);
  });

  it('to another path gets status 404', async () => {
    assert.equal((await post({ authorization }, INITIALIZE, '/')).status, 404);
  });

  it('may name a host of the option allowedHosts', async () => {
    const named = await serveHttp({ port: 0, baseUrl: service.baseUrl, allowedHosts: ['mcp.example'] });
    const { port } = new URL(named.url);
    assert.equal(
      (await post({ authorization, host: 'mcp.example' }, INITIALIZE, `http://127.0.0.1:${port}/mcp`)).status,
      200,
    );
    await named.close();
  });
});

/** Serves a job that runs until it is cancelled. */
function serveEndlessJob() {
  const begun = Promise.withResolvers<void>();
  const cancelled = Promise.withResolvers<void>();
  const ended = { body: jobOf({ status: 'canceled', exit_code: null, signal: 'SIGKILL' }) };
  service.on('POST /v1/machines/*/execs', () => {
    begun.resolve();
    return { status: 201, body: jobOf({ status: 'running', exit_code: null }) };
  });
  service.on('GET /v1/machines/*/execs/*', () => cancelled.promise.then(() => ended));
  service.on('POST /v1/machines/*/execs/*/cancel', () => {
    cancelled.resolve();
    return ended;
  });
  return { begun: begun.promise, cancelled: cancelled.promise };
}

describe('a running call', () => {
  const exec = { name: 'exec', arguments: { machine_id: MACHINE_ID, command: 'x' } };
  for (const mode of MODES) {
    it(`cancels its job when the caller cancels the call ("${mode}")`, async () => {
      const job = serveEndlessJob();
      const { agent } = await connect('sbr_one', mode);
      const abort = new AbortController();
      const call = agent.callTool(exec, { signal: abort.signal });
      await job.begun;
      abort.abort();
      await assert.rejects(call);
      await job.cancelled;
      await agent.close();
    });

    it(`cancels its job when the server ends ("${mode}")`, async () => {
      const job = serveEndlessJob();
      const { agent } = await connect('sbr_one', mode);
      const call = agent.callTool(exec);
      await job.begun;
      await server.close();
      assert.ok(service.requests.some(({ path }) => path.endsWith('/cancel')));
      assert.match(textOf(await call), /^Error shutting_down: /);
      await agent.close().catch(() => undefined);
      server = await serveHttp({ port: 0, baseUrl: service.baseUrl });
    });
  }
});
