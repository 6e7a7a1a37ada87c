// Tests archives, both ways, and watches of files, against a guest that the test plays. Also tests the limits on open
// streams of files and on changes of files.
import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { buffer } from 'node:stream/consumers';
import { describe, it } from 'node:test';
import { insertKey } from '../src/api-keys/store.ts';
import { guestEntry } from './support/guest-files.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const STREAMS = 4;
const SLOW = 0.001;
const unlimited = { perSec: 10_000, burst: 10_000 };
const rates = {
  mutating: { perSec: SLOW, burst: 3 },
  exec: unlimited,
  files: { perSec: SLOW, burst: 20 },
  signInAddress: unlimited,
  signInEmail: unlimited,
  signInUnknown: unlimited,
};
const bed = await startTestBed({
  bounds: { streamsPerAccount: STREAMS },
  config: { rates },
});
const { api, host, keys, plane } = bed;
const machine: string = (await api('POST', '/v1/machines')).json.id;
const files = `/v1/machines/${machine}/files`;
const origin = `http://${plane.address.host}:${plane.address.port}`;
const refill = () => plane.app.db.deleteFrom('rate_buckets').execute();

type Name = 'files.archive' | 'files.unpack' | 'files.watch' | 'files.read' | 'files.write';

/** Makes the guest open streams of this name. Returns the streams that it has opened, with what it was asked. */
function play(name: Name, act: (stream: PlayedStream) => void, head: unknown = {}) {
  const opened: { stream: PlayedStream; params: unknown }[] = [];
  host.guestStreams[name] = (_machineId, params) => {
    const stream = playStream(head);
    opened.push({ stream, params });
    act(stream);
    return stream;
  };
  return opened;
}

const open = (path: string, signal?: AbortSignal, key = keys.full) =>
  fetch(`${origin}${path}`, { headers: { authorization: `Bearer ${key}` }, ...(signal ? { signal } : {}) });

describe('an archive', () => {
  it('comes from the guest byte for byte', async () => {
    const opened = play('files.archive', (stream) => {
      stream.guest.write(Buffer.alloc(1024, 'a'));
      stream.finish({});
    });
    const response = await open(`${files}/archive?path=/d%FF`);
    assert.equal(response.status, 200);
    assert.equal(response.headers.get('content-type'), 'application/x-tar');
    assert.deepEqual(Buffer.from(await response.arrayBuffer()), Buffer.alloc(1024, 'a'));
    assert.deepEqual(opened[0]?.params, { path: '/d%FF' });
  });

  it('that the guest does not confirm never looks complete', async () => {
    for (const act of [
      (stream: PlayedStream) => stream.fail(new Error('cut')),
      (stream: PlayedStream) => setImmediate(() => stream.duplex.destroy()),
    ]) {
      play('files.archive', (stream) => {
        stream.guest.write(Buffer.alloc(1024));
        act(stream);
      });
      const response = await open(`${files}/archive?path=/d`);
      await assert.rejects(response.arrayBuffer());
    }
  });

  it('is unpacked by the guest, and the answer names what was refused', async () => {
    const refused = [{ name: '../%C3%BC%FF', reason: 'it would leave the folder' }];
    const received: Buffer[] = [];
    const opened = play('files.unpack', (stream) => {
      void buffer(stream.guest).then((bytes) => {
        received.push(bytes);
        stream.finish({ entries: 3, refused, refused_count: 1, more: 'than asked for' });
      });
    });
    const { status, json } = await api('PUT', `${files}/archive?path=/d&user=me`, { rawBody: 'a tar' });
    assert.deepEqual(
      [status, json],
      [200, { entries: 3, refused_count: 1, refused: [{ ...refused[0], name: '../ü\ufffd' }] }],
    );
    assert.deepEqual([opened[0]?.params, String(received[0])], [{ path: '/d', user: 'me' }, 'a tar']);
  });

  it('with an answer of another shape is an error', async () => {
    const refused = Array.from({ length: 21 }, () => ({ name: 'x', reason: 'y' }));
    for (const result of [
      {},
      { entries: 1, refused: [{ name: '%', reason: 'y' }], refused_count: 1 },
      { entries: -1, refused: [], refused_count: 0 },
      { entries: 1, refused, refused_count: 21 },
    ]) {
      play('files.unpack', (stream) => stream.guest.resume().on('end', () => stream.finish(result)));
      assert.equal((await api('PUT', `${files}/archive?path=/d`, { rawBody: 'x' })).status, 500);
    }
  });

  it('has no HEAD', async () => {
    assert.equal((await api('HEAD', `${files}/archive?path=/d`)).status, 405);
    assert.equal((await api('HEAD', `${files}/watch?path=/d`)).status, 405);
  });
});

/** Opens a watch, and collects its events until the connection ends. */
async function watch(query = 'path=/d', key = keys.full) {
  const closing = new AbortController();
  const response = await open(`${files}/watch?${query}`, closing.signal, key);
  const events: unknown[] = [];
  let comments = 0;
  const read = async () => {
    let rest = '';
    for await (const chunk of response.body ?? []) {
      const blocks = (rest + Buffer.from(chunk as Uint8Array).toString()).split('\n\n');
      rest = blocks.pop() ?? '';
      for (const block of blocks) {
        if (block.startsWith('data: ')) events.push(JSON.parse(block.slice(6)));
        else if (block.startsWith(':')) comments++;
      }
    }
    return 'ended';
  };
  const end = read().catch(() => 'broke');
  return { response, events, end, comments: () => comments, close: () => closing.abort() };
}

describe('a watch', () => {
  it('sends the events of the guest, with names in both forms, and ends when the guest ends it', async () => {
    const opened = play('files.watch', (stream) => stream.guest.write('{"type":"ready"}\n{"type":"cre'));
    const { response, events, end, comments } = await watch('path=/d&recursive=false');
    assert.equal(response.headers.get('content-type'), 'text/event-stream; charset=utf-8');
    await until(() => events.length === 1 && comments() > 0, 'ready, and a heartbeat');
    const [{ stream, params } = assert.fail()] = opened;
    assert.deepEqual(params, { path: '/d', recursive: false });
    stream.guest.write('ated","path":"/d/a%0Ab"}\n{"type":"renamed","path":"/d/%FF","from":"/d/a","cookie":7}\n');
    stream.guest.write('{"type":"overflow"}\n');
    stream.finish({});
    assert.equal(await end, 'ended');
    assert.deepEqual(events, [
      { type: 'ready' },
      { type: 'created', path: '/d/a\nb' },
      { type: 'renamed', path: '/d/\ufffd', path_encoded: '/d/%FF', from: '/d/a' },
      { type: 'overflow' },
    ]);
  });

  it('is recursive unless told otherwise', async () => {
    const opened = play('files.watch', (stream) => stream.finish({}));
    assert.equal(await (await watch()).end, 'ended');
    assert.deepEqual(opened[0]?.params, { path: '/d', recursive: true });
  });

  for (const [what, text] of [
    ['no JSON', 'nonsense\n'],
    ['an unknown event', '{"type":"exploded","path":"/a"}\n'],
    ['an event without a path', '{"type":"created"}\n'],
    ['a path that is none', '{"type":"created","path":"a"}\n'],
    ['an endless line', `{"type":"created","path":"/${'x'.repeat(200_000)}`],
  ] as const) {
    it(`from a hostile guest with ${what} breaks off`, async () => {
      const opened = play('files.watch', (stream) => stream.guest.write(`{"type":"ready"}\n${text}`));
      const { end, events } = await watch();
      assert.equal(await end, 'broke');
      assert(events.length <= 1);
      await until(() => opened[0]?.stream.duplex.destroyed === true, 'the stream is closed');
    });
  }

  it('that is cut breaks off', async () => {
    play('files.watch', (stream) => setImmediate(() => stream.duplex.destroy()));
    assert.equal(await (await watch()).end, 'broke');
  });

  it('ends for the guest when its client leaves, and when its key is revoked', async () => {
    const opened = play('files.watch', (stream) => stream.guest.write('{"type":"ready"}\n'));
    const left = await watch();
    left.close();
    await until(() => opened[0]?.stream.duplex.destroyed === true, 'the client has left');
    const key = await insertKey(plane.app.db, bed.accountId, 'read', 'watches');
    const { end } = await watch('path=/d', key);
    await plane.app.db.deleteFrom('api_keys').where('name', '=', 'watches').execute();
    assert.equal(await end, 'broke');
    await until(() => opened[1]?.stream.duplex.destroyed === true, 'the key is revoked');
  });

  it('that nobody reads holds little in memory, and goes on when it is read', async () => {
    const line = `{"type":"changed","path":"/d/${'x'.repeat(1000)}"}\n`;
    let written = 0;
    let isDone = false;
    play('files.watch', (stream) => {
      const write = () => {
        while (!isDone && stream.guest.write(line)) written++;
      };
      stream.guest.on('drain', write);
      write();
    });
    const socket = connect(plane.address.port, plane.address.host).on('error', () => undefined);
    socket.pause();
    socket.write(`GET ${files}/watch?path=/d HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${keys.full}\r\n\r\n`);
    let before = -1;
    await until(() => {
      const isStill = written > 0 && before === written;
      before = written;
      return isStill;
    }, 'nothing more is taken');
    assert(written * line.length < 32_000_000, `${written} events were taken`);
    let bytes = 0;
    socket.on('data', (chunk) => {
      bytes += chunk.length;
    });
    socket.resume();
    await until(() => bytes > 2 * before * line.length, 'events flow again');
    isDone = true;
    socket.destroy();
  });
});

describe('the streams of files of an account', () => {
  it('are bounded, watches apart from transfers, and one more is 429 until one ends (RES-10)', async () => {
    play('files.watch', (stream) => stream.guest.write('{"type":"ready"}\n'));
    play('files.archive', (stream) => stream.guest.write('x'));
    for (const path of [`${files}/watch?path=/d`, `${files}/archive?path=/d`]) {
      const controllers = Array.from({ length: STREAMS }, () => new AbortController());
      const opened = await Promise.all(controllers.map(({ signal }) => open(path, signal)));
      assert(opened.every(({ status }) => status === 200));
      const refused = await api('GET', path);
      assert.deepEqual([refused.status, refused.json.code], [429, 'rate_limited']);
      for (const controller of controllers) controller.abort();
      await until(async () => {
        const one = new AbortController();
        const { status } = await open(path, one.signal);
        one.abort();
        return status === 200;
      }, 'the places are free');
    }
  });
});

describe('changes of files', () => {
  it('have a bucket of their own, which all of them share', async () => {
    await refill();
    host.guestCalls['files.remove'] = () => ({});
    host.guestCalls['files.mkdir'] = () => ({ entry: guestEntry(), created: true });
    host.guestCalls['files.move'] = () => guestEntry();
    play('files.write', (stream) => stream.guest.resume().on('end', () => stream.finish({ entry: guestEntry() })));
    play('files.unpack', (stream) =>
      stream.guest.resume().on('end', () => stream.finish({ entries: 0, refused: [], refused_count: 0 })),
    );
    const changes = [
      () => api('DELETE', `${files}?path=/a`),
      () => api('POST', `${files}/directory`, { body: { path: '/a' } }),
      () => api('POST', `${files}/move`, { body: { from: '/a', to: '/b' } }),
      () => api('PUT', `${files}/content?path=/a`, { rawBody: 'x' }),
      () => api('PUT', `${files}/archive?path=/a`, { rawBody: 'x' }),
    ];
    for (let round = 0; round < rates.files.burst / changes.length; round++) {
      for (const change of changes) assert((await change()).status < 300);
    }
    for (const change of changes) assert.deepEqual((await change()).json.code, 'rate_limited');
    const stop = await api('POST', `/v1/machines/${machine}/start`);
    assert.deepEqual([stop.status, stop.headers.get('ratelimit-remaining')], [200, '2'], 'other changes go on');
    await refill();
  });
});
