import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:http';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, it } from 'node:test';
import { getUnixJson, requestUnix } from './unix-request.ts';

describe('a request on a Unix socket', () => {
  const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-unix-'));
  const socket = path.join(folder, 'socket');
  const server = createServer(async (request, response) => {
    if (request.url === '/silent') return;
    if (request.url === '/refused') response.statusCode = 409;
    const { method, headers } = request;
    response.end(JSON.stringify({ method, type: headers['content-type'], body: await text(request) }));
  });
  before(async () => {
    server.listen(socket);
    await once(server, 'listening');
  });
  after(() => {
    server.close();
    server.closeAllConnections();
    rmSync(folder, { recursive: true });
  });

  it('gets JSON', async () => {
    assert.deepEqual(await getUnixJson(socket, '/'), { method: 'GET', body: '' });
  });

  it('posts JSON', async () => {
    const answer = await requestUnix(socket, { method: 'POST', path: '/', body: { a: 'ü' } });
    assert.equal(answer.status, 200);
    assert.deepEqual(JSON.parse(answer.text), { method: 'POST', type: 'application/json', body: '{"a":"ü"}' });
  });

  it('tells the status of a refusal', async () => {
    assert.equal((await requestUnix(socket, { path: '/refused' })).status, 409);
    await assert.rejects(getUnixJson(socket, '/refused'), /^Error: \/refused answered 409: \{"method"/);
  });

  it('rejects when nobody listens, and when no answer comes in time', async () => {
    await assert.rejects(requestUnix(path.join(folder, 'nobody'), { path: '/' }), { code: 'ENOENT' });
    await assert.rejects(requestUnix(socket, { path: '/silent', timeoutMs: 50 }), { name: 'TimeoutError' });
  });
});
