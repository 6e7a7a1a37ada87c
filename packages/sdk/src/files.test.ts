// Tests the file calls of the client. A server in this process breaks connections as each test wants.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { after, before, beforeEach, describe, it } from 'node:test';
import { toText } from './bytes.ts';
import { Client } from './client.ts';
import { FileChangedError } from './errors.ts';
import { type Files, pathOf } from './files.ts';
import { DiskFullError } from './service-errors.ts';

type Handler = (request: IncomingMessage, response: ServerResponse) => void | Promise<void>;
type Request = { method: string; url: string; headers: IncomingMessage['headers'] };

let server: Server;
let files: Files;
let requests: Request[];
/** The handlers of the next requests, one for each request. The last handler also handles all further requests. */
let handlers: Handler[];

before(async () => {
  server = createServer((request, response) => {
    const { method = '', url = '', headers } = request;
    requests.push({ method, url, headers });
    const handle = handlers.length > 1 ? handlers.shift() : handlers[0];
    void handle?.(request, response);
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  files = new Client({ baseUrl: `http://127.0.0.1:${address.port}`, apiKey: 'sbr_key' }).files('m');
});
after(() => {
  server.closeAllConnections();
  server.close();
});
beforeEach(() => {
  requests = [];
  handlers = [];
});

async function collect<T>(items: AsyncIterable<T>): Promise<T[]> {
  const collected: T[] = [];
  for await (const item of items) collected.push(item);
  return collected;
}

const ENTRY = { path: '/a', name: 'a', type: 'file', size: 1 };
const json =
  (status: number, body: object = ENTRY): Handler =>
  (request, response) => {
    request.resume().once('end', () => {
      response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
    });
  };
const refusal = (status: number, code: string): Handler => json(status, { code, detail: 'no' });
const broken: Handler = (request, response) => {
  request.resume().once('end', () => response.destroy());
};
const wanted = () => requests.map(({ method, url }) => `${method} ${url}`);

describe('a path', () => {
  it('is sent byte for byte, whatever characters it has', async () => {
    handlers = [json(200)];
    await files.stat('/a b/ü?&%+#\n');
    await files.stat(Buffer.from([0x2f, 0xff]));
    await files.stat(pathOf({ path: '/\ufffd', path_encoded: '/%FE' }));
    assert.deepEqual(
      requests.map(({ url }) => url),
      [
        '/v1/machines/m/files/entry?path=/a%20b/%C3%BC%3F%26%25%2B%23%0A',
        '/v1/machines/m/files/entry?path=/%FF',
        '/v1/machines/m/files/entry?path=/%FE',
      ],
    );
  });
});

/** Serves `content`, or the requested range, and breaks the connection after `breakAt` bytes of the answer. */
function serve(content: string, { etag = '"v1"', breakAt = Number.POSITIVE_INFINITY, hasParts = true } = {}): Handler {
  return (request, response) => {
    const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
    const ifRange = request.headers['if-range'];
    const isPart = first !== undefined && (ifRange === undefined || ifRange === etag);
    if (isPart && Number(first) >= content.length) {
      refusal(416, 'range_not_satisfiable')(request, response);
      return;
    }
    const part = isPart ? content.slice(Number(first), last ? Number(last) + 1 : undefined) : content;
    response.writeHead(isPart ? 206 : 200, {
      etag,
      ...(hasParts ? { 'content-length': part.length, 'accept-ranges': 'bytes' } : {}),
    });
    if (breakAt >= part.length) response.end(part);
    else response.write(part.slice(0, breakAt), () => setTimeout(() => response.destroy(), 20));
  };
}

describe('a download', () => {
  it('has the bytes of the file', async () => {
    handlers = [serve('hello')];
    assert.equal(await files.readText('/a'), 'hello');
    assert.deepEqual(wanted(), ['GET /v1/machines/m/files/content?path=/a']);
    assert.equal(requests[0]?.headers.range, undefined);
  });

  it('of a part requests only that part', async () => {
    handlers = [serve('hello')];
    assert.equal(toText(await files.read('/a', { start: 1, end: 3 })), 'ell');
    assert.equal(toText(await files.read('/a', { start: 2 })), 'llo');
    assert.equal(toText(await files.read('/a', { end: 1 })), 'he');
  });

  it('continues at the same byte after each broken connection', async () => {
    handlers = [serve('0123456789', { breakAt: 3 }), serve('0123456789', { breakAt: 2 }), broken, serve('0123456789')];
    assert.equal(await files.readText('/a'), '0123456789');
    const asked = requests.map(({ headers }) => [headers.range, headers['if-range']]);
    assert.deepEqual(asked, [
      [undefined, undefined],
      ['bytes=3-', '"v1"'],
      ['bytes=5-', '"v1"'],
      ['bytes=5-', '"v1"'],
    ]);
  });

  it('of a part continues within that part after a broken connection', async () => {
    handlers = [serve('0123456789', { breakAt: 2 }), serve('0123456789')];
    assert.equal(toText(await files.read('/a', { start: 4, end: 8 })), '45678');
    assert.equal(requests[1]?.headers.range, 'bytes=6-8');
  });

  it('throws an error when the file was changed meanwhile, even to a shorter file', async () => {
    for (const changed of ['ABCDEFGHIJ', 'AB']) {
      handlers = [serve('0123456789', { breakAt: 3 }), serve(changed, { etag: '"v2"' })];
      await assert.rejects(files.read('/a'), FileChangedError);
    }
    handlers = [serve('0123456789', { breakAt: 3 }), refusal(416, 'range_not_satisfiable')];
    await assert.rejects(files.read('/a'), FileChangedError);
  });

  it('throws an error after a broken connection when the service cannot serve parts of the file', async () => {
    handlers = [serve('0123456789', { breakAt: 3, hasParts: false })];
    await assert.rejects(files.read('/proc/x'), { name: 'ConnectionError' });
    assert.equal(requests.length, 1);
  });

  it('is closed when the caller stops reading', async () => {
    const closed = Promise.withResolvers<void>();
    handlers = [
      (_request, response) => {
        response.writeHead(200, { 'content-length': 1e9 }).write('x');
        response.once('close', closed.resolve);
      },
    ];
    for await (const chunk of files.stream('/a')) {
      assert.equal(Buffer.from(chunk).toString(), 'x');
      break;
    }
    await closed.promise;
  });
});

describe('a write', () => {
  const bodies: string[] = [];
  const keep: Handler = async (request, response) => {
    bodies.push((await buffer(request)).toString());
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(ENTRY));
  };
  const keepAndBreak: Handler = async (request, response) => {
    bodies.push((await buffer(request)).toString());
    response.destroy();
  };
  beforeEach(() => {
    bodies.length = 0;
  });

  it('sends the bytes and the options', async () => {
    handlers = [keep];
    assert.deepEqual(await files.write('/a', 'text', { mode: 0o600, user: 'me', parents: false }), ENTRY);
    await files.write('/a', Buffer.alloc(3_000_000, 'b'));
    await files.write('/a', () => ReadableStream.from([Buffer.from('c')]));
    assert.deepEqual(wanted().slice(0, 2), [
      'PUT /v1/machines/m/files/content?path=/a&mode=0600&user=me&parents=false',
      'PUT /v1/machines/m/files/content?path=/a',
    ]);
    assert.deepEqual(
      bodies.map((body) => [body.length, body[0]]),
      [
        [4, 't'],
        [3_000_000, 'b'],
        [1, 'c'],
      ],
    );
  });

  it('is repeated from the beginning of its content after a broken connection, a 429 and a 503', async () => {
    const large = Buffer.alloc(2_000_000, 'x');
    for (const content of [
      'text',
      Buffer.from('text'),
      large,
      () => ReadableStream.from([Buffer.from('te'), Buffer.from('xt')]),
    ]) {
      bodies.length = 0;
      handlers = [keepAndBreak, refusal(503, 'host_unavailable'), refusal(429, 'rate_limited'), keep];
      await files.write('/a', content);
      assert.deepEqual(bodies, Array(2).fill(content === large ? large.toString() : 'text'));
    }
  });

  it('of an iterable is never repeated, because an iterable can be read only once', async () => {
    async function* once() {
      yield Buffer.from('text');
    }
    for (const handler of [keepAndBreak, refusal(503, 'host_unavailable')]) {
      requests = [];
      handlers = [handler];
      await assert.rejects(files.write('/a', once()));
      assert.equal(requests.length, 1);
    }
  });

  it('that must not overwrite is not repeated when the first request may have created the file', async () => {
    handlers = [keepAndBreak];
    await assert.rejects(files.write('/a', 'x', { overwrite: false }), { name: 'ConnectionError' });
    assert.equal(requests.length, 1);
    assert.equal(requests[0]?.headers['if-none-match'], '*');
  });

  it('throws the error of its content, and closes the connection', async () => {
    const arrived = Promise.withResolvers<void>();
    const cut = Promise.withResolvers<void>();
    handlers = [
      (request) => {
        request.once('data', () => arrived.resolve());
        request.once('close', () => {
          if (!request.complete) cut.resolve();
        });
      },
    ];
    async function* failing(): AsyncGenerator<Uint8Array> {
      yield Buffer.from('x');
      await arrived.promise;
      throw new Error('cannot read the source');
    }
    const written = files.write('/a', failing());
    await assert.rejects(written, { message: 'cannot read the source' });
    await cut.promise;
  });

  it('to a full disk throws a DiskFullError, even before all content is sent', async () => {
    handlers = [
      (request, response) => {
        request.once('data', () => {
          const body = JSON.stringify({ code: 'disk_full', detail: 'no room for /a' });
          response.writeHead(507, { 'content-type': 'application/json' }).end(body);
          request.resume();
        });
      },
    ];
    async function* endless() {
      for (;;) yield Buffer.alloc(100_000);
    }
    await assert.rejects(files.write('/a', endless()), DiskFullError);
    await assert.rejects(
      files.write('/a', () => endless()),
      DiskFullError,
    );
  });
});

describe('a list', () => {
  it('has the entries of all pages', async () => {
    handlers = [
      json(200, { entries: [{ path: '/d/a' }, { path: '/d/b' }], next_cursor: 'c1' }),
      json(200, { entries: [{ path: '/d/c' }], next_cursor: '' }),
    ];
    const entries = await files.list('/d', { depth: 2 });
    assert.deepEqual(
      entries.map(({ path }) => path),
      ['/d/a', '/d/b', '/d/c'],
    );
    assert.deepEqual(wanted(), [
      'GET /v1/machines/m/files?path=/d&depth=2',
      'GET /v1/machines/m/files?path=/d&depth=2&cursor=c1',
    ]);
  });
});

describe('a remove, a move or a mkdir whose answer was lost', () => {
  it('succeeds when its repetition shows that the first request was carried out', async () => {
    handlers = [broken, refusal(404, 'not_found')];
    await files.remove('/a');
    handlers = [broken, refusal(404, 'not_found'), json(200)];
    assert.deepEqual(await files.move('/old', '/a'), ENTRY);
    assert.equal(requests.at(-1)?.url, '/v1/machines/m/files/entry?path=/a');
    handlers = [refusal(503, 'host_unavailable'), refusal(404, 'not_found'), json(200)];
    assert.deepEqual(await files.move('/old', '/a'), ENTRY);
    handlers = [broken, json(200)];
    assert.deepEqual(await files.mkdir('/a'), ENTRY);
  });

  it('throws the refusal when the first request cannot have been carried out', async () => {
    handlers = [refusal(404, 'not_found')];
    await assert.rejects(files.remove('/a'), { code: 'not_found' });
    await assert.rejects(files.move('/old', '/a'), { code: 'not_found' });
    handlers = [broken, refusal(404, 'not_found'), refusal(404, 'not_found')];
    await assert.rejects(files.move('/old', '/a'), { code: 'not_found' });
    handlers = [refusal(503, 'shutting_down'), refusal(404, 'not_found'), json(200)];
    await assert.rejects(files.move('/old', '/a'), { code: 'not_found' });
  });
});

describe('an archive', () => {
  it('is read to its end, or throws an error', async () => {
    handlers = [serve('tar', { hasParts: false }), serve('tar', { hasParts: false, breakAt: 1 })];
    const read = async () => Buffer.concat(await collect(files.archive('/d'))).toString();
    assert.equal(await read(), 'tar');
    await assert.rejects(read(), { name: 'ConnectionError' });
  });

  it('is unpacked for the given owner', async () => {
    handlers = [json(200, { entries: 1, refused_count: 0, refused: [] })];
    assert.equal((await files.unpack('/d', 'tar', { user: 'me' })).entries, 1);
    assert.deepEqual(wanted(), ['PUT /v1/machines/m/files/archive?path=/d&user=me']);
  });
});

describe('a watch', () => {
  const events =
    (...list: object[]): Handler =>
    (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`:\n\n${list.map((event) => `data: ${JSON.stringify(event)}\n\n`).join('')}`);
      setTimeout(() => response.destroy(), 20);
    };
  const ending =
    (...list: object[]): Handler =>
    (_request, response) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(list.map((event) => `data: ${JSON.stringify(event)}\n\n`).join(''));
    };

  it('continues after a broken connection, reports that events may be lost, and ends when the path is removed', async () => {
    handlers = [
      events({ type: 'ready' }, { type: 'created', path: '/d/a' }),
      ending({ type: 'ready' }, { type: 'removed', path: '/d' }),
    ];
    assert.deepEqual(await collect(files.watch('/d', { recursive: false })), [
      { type: 'ready' },
      { type: 'created', path: '/d/a' },
      { type: 'overflow' },
      { type: 'removed', path: '/d' },
    ]);
    assert.deepEqual(wanted(), Array(2).fill('GET /v1/machines/m/files/watch?path=/d&recursive=false'));
  });

  it('throws the error when the machine or the path does not exist any more', async () => {
    handlers = [events({ type: 'ready' }), refusal(404, 'not_found')];
    await assert.rejects(collect(files.watch('/d')), { code: 'not_found' });
  });
});
