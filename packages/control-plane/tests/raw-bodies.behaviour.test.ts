// Tests routes that take bytes of any type and length: which rules still apply to them, answers before the end of the
// body, clients that disconnect or are slow, and memory.
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { type AddressInfo, connect, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { after, describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import fastify, { type FastifyRequest } from 'fastify';
import { sql } from 'kysely';
import { installAuth } from '../src/http/auth.ts';
import { sendError } from '../src/http/errors.ts';
import { RawBodies } from '../src/http/raw-bodies.ts';
import { installStrictness } from '../src/http/strictness.ts';
import { installRateLimits } from '../src/rate-limits/hook.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const CHUNK = Buffer.alloc(64 * 1024, 'x');
/** How long a client may take to send a request that is not raw. Even a busy computer sends one in this time. */
const RECEIVE_MS = 1_000;
const SLOW = { perSec: 0.001, burst: 1000 };
const bed = await startTestBed({
  config: {
    rates: { mutating: SLOW, exec: SLOW, signInAddress: SLOW, signInEmail: SLOW, signInUnknown: SLOW, files: SLOW },
  },
});
const { app } = bed.plane;

/** What became of each body, by the name in the query. */
const fates = new Map<string, string>();
const bodies = new Map<string, Readable>();
const rawBodies = new RawBodies();
const server = fastify({
  bodyLimit: 1000,
  requestTimeout: RECEIVE_MS,
  http: { headersTimeout: RECEIVE_MS, connectionsCheckingInterval: 10 },
  ajv: { customOptions: { removeAdditional: false } },
  clientErrorHandler: (error: NodeJS.ErrnoException, socket: Socket) => {
    if (error.code === 'ERR_HTTP_REQUEST_TIMEOUT' && rawBodies.isReceiving(socket)) return;
    socket.destroy();
  },
});
server.setErrorHandler(sendError);
server.removeContentTypeParser('text/plain');
installAuth(server, app);
installRateLimits(server, app);
installStrictness(server);
rawBodies.install(server);
const Query = { type: 'object', properties: { name: { type: 'string' } }, additionalProperties: false };
const bodyOf = (request: FastifyRequest): Readable => {
  const body = request.body as Readable;
  const { name = '' } = request.query as { name?: string };
  bodies.set(name, body);
  body.once('end', () => fates.set(name, 'ended'));
  body.once('error', () => fates.set(name, 'cut'));
  return body;
};
await rawBodies.addRoutes(server, (scope) => {
  scope.put('/hash', { schema: { querystring: Query }, config: { access: 'full', rawBody: true } }, async (request) => {
    const hash = createHash('sha256');
    let length = 0;
    for await (const chunk of bodyOf(request)) {
      hash.update(chunk);
      length += chunk.length;
    }
    return { length, sha256: hash.digest('hex') };
  });
  scope.put(
    '/refuse',
    { schema: { querystring: Query }, config: { access: 'full', rawBody: true } },
    async (request) => {
      await once(bodyOf(request), 'readable');
      throw new ServiceError('conflict', 'It exists.');
    },
  );
  scope.put('/hold', { schema: { querystring: Query }, config: { access: 'full', rawBody: true } }, async (request) => {
    await once(bodyOf(request), 'close');
  });
});
server.put('/json', { config: { access: 'full' }, schema: { body: { type: 'object' } } }, async () => ({}));
await server.listen({ port: 0, host: '127.0.0.1' });
after(() => server.close());
const { port } = server.server.address() as AddressInfo;

const put = (path: string, body: string | Buffer | Readable | null, headers: Record<string, string> = {}) =>
  fetch(`http://127.0.0.1:${port}${path}`, {
    method: 'PUT',
    body,
    duplex: 'half',
    headers: { authorization: `Bearer ${bed.keys.full}`, ...headers },
  } as object);
const jsonOf = async (answer: Response) => (await answer.json()) as Record<string, unknown>;
const sha256 = (bytes: Buffer) => createHash('sha256').update(bytes).digest('hex');
const chunks = (count: number) =>
  Readable.from(
    (function* () {
      for (let index = 0; index < count; index++) yield CHUNK;
    })(),
  );

/** Sends the head of an upload of this length, and nothing more. */
function beginUpload(path: string, length = 1_000_000_000): Socket {
  const socket = connect(port, '127.0.0.1').on('error', () => undefined);
  const authorization = `authorization: Bearer ${bed.keys.full}`;
  socket.write(`PUT ${path} HTTP/1.1\r\nhost: x\r\n${authorization}\r\ncontent-length: ${length}\r\n\r\n`);
  return socket;
}

describe('a raw body', () => {
  it('may have any content type or none, be longer than a JSON body, chunked or empty', async () => {
    const text = Buffer.from('{"not": parsed');
    for (const type of ['application/json', 'text/plain', 'nonsense', 'application/octet-stream']) {
      const answer = await put('/hash', text, { 'content-type': type });
      assert.deepEqual(
        [answer.status, await jsonOf(answer)],
        [200, { length: text.length, sha256: sha256(text) }],
        type,
      );
    }
    const long = await jsonOf(await put('/hash', chunks(100)));
    assert.equal(long.length, 100 * CHUNK.length);
    assert.deepEqual(await jsonOf(await put('/hash', null)), { length: 0, sha256: sha256(Buffer.alloc(0)) });
  });

  it('leaves JSON routes as they were', async () => {
    const types = ['text/plain', 'application/octet-stream'];
    for (const type of types) assert.equal((await put('/json', 'x', { 'content-type': type })).status, 415);
    const large = JSON.stringify({ a: 'x'.repeat(2000) });
    assert.equal((await put('/json', large, { 'content-type': 'application/json' })).status, 413);
  });

  it('is read only for a caller with a credential, the scope and a token, and with known parameters', async () => {
    const refusals: [string, Record<string, string>, number][] = [
      ['/hash?name=no-key', { authorization: '' }, 401],
      ['/hash?name=read-key', { authorization: `Bearer ${bed.keys.read}` }, 403],
      ['/hash?name=query&other=1', {}, 400],
    ];
    for (const [path, headers, status] of refusals) assert.equal((await put(path, 'x', headers)).status, status, path);
    await app.db.updateTable('rate_buckets').set({ full_at: sql`now() + interval '12 days'` }).execute();
    const limited = await put('/hash?name=rate', 'x');
    assert.deepEqual([limited.status, (await jsonOf(limited)).code], [429, 'rate_limited']);
    assert(limited.headers.get('ratelimit-limit'));
    await app.db.deleteFrom('rate_buckets').execute();
    assert.deepEqual(
      [...bodies.keys()].filter((name) => name !== ''),
      [],
    );
  });

  it('that is refused while it is sent still gets its answer', async () => {
    const socket = beginUpload('/refuse', 300 * CHUNK.length);
    // This client looks at the answer only after it has sent everything.
    for (let index = 0; index < 300; index++) {
      if (!socket.write(CHUNK)) await once(socket, 'drain');
    }
    const [answer] = await once(socket, 'data');
    assert.match(String(answer), /^HTTP\/1.1 409/);
    socket.destroy();
  });

  it('whose rest is never sent keeps its connection only shortly after the answer', async () => {
    const socket = beginUpload('/refuse');
    socket.write('first bytes');
    const [answer] = await once(socket, 'data');
    assert.match(String(answer), /^HTTP\/1.1 409/);
    await once(socket, 'close');
  });

  it('that breaks off is an error of the stream, never its end', async () => {
    const socket = beginUpload('/hash?name=broken');
    await until(() => bodies.has('broken'), 'the handler reads');
    socket.destroy();
    await until(() => fates.has('broken'), 'the handler was told');
    assert.equal(fates.get('broken'), 'cut');
  });

  it('may take longer than the general time for a request, which other requests still have', async () => {
    const socket = beginUpload('/hold?name=slow');
    await until(() => bodies.has('slow'), 'the handler has the body');
    const json = connect(port, '127.0.0.1')
      .on('error', () => undefined)
      .resume();
    json.write(
      `PUT /json HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${bed.keys.full}\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{`,
    );
    await once(json, 'close');
    assert(!socket.destroyed && !fates.has('slow'));
    socket.destroy();
    await until(() => fates.has('slow'), 'the upload ended');
  });

  it('that nobody reads takes little memory', async () => {
    const socket = beginUpload('/hold?name=unread');
    await until(() => bodies.has('unread'), 'the handler has the body');
    const body = bodies.get('unread');
    assert(body);
    // Writes until the connection takes nothing more.
    while (socket.write(CHUNK)) await new Promise(setImmediate);
    assert(body.readableLength <= 4 * CHUNK.length, `${body.readableLength} bytes are waiting`);
    socket.destroy();
  });

  it('is given only to routes that declare it', async () => {
    const route = async () => ({});
    const misplaced = fastify();
    rawBodies.install(misplaced);
    const addRaw = () => misplaced.put('/x', { config: { access: 'full', rawBody: true } }, route);
    assert.throws(addRaw, /RawBodies.addRoutes/);
    const undeclared = fastify();
    rawBodies.install(undeclared);
    const addTo = async () =>
      rawBodies.addRoutes(undeclared, (scope) => scope.put('/x', { config: { access: 'full' } }, route));
    await assert.rejects(addTo, /RawBodies.addRoutes/);
  });
});
