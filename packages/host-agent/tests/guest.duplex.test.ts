// Tests the host's side of two-way streams. The test itself is the guest: it reads and writes the frames of the
// protocol on the other end of the connection.
import assert from 'node:assert/strict';
import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { after, before, describe, it } from 'node:test';
import { KIND } from '../src/guest/frame-codec.ts';
import type { GuestStream } from '../src/guest/guest-stream.ts';
import { beginOf, endOf, frameOf, type GuestCall, outputOf } from './support/frame-guest.ts';
import { FrameSessions, turns } from './support/frame-sessions.ts';

const WINDOW = 256 * 1024;
const HEAD = '{"size":3}';

/** Begins the stream, sends its input back, and ends it with the number of bytes. */
function echo(call: GuestCall): void {
  let [offset, queue] = [0, Promise.resolve()];
  call.onInput = (bytes) => {
    queue = queue.then(async () => {
      if (!bytes) return call.send(endOf(call.id, { result: { bytes: offset } }));
      await call.output(offset, bytes);
      offset += bytes.length;
      call.allow(bytes.length);
    });
  };
  call.send(beginOf(call.id, 200, HEAD));
}

async function hashOf(stream: AsyncIterable<Buffer>): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of stream) hash.update(chunk);
  return hash.digest('hex');
}

async function readText({ duplex }: GuestStream): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of duplex as AsyncIterable<Buffer>) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
}

describe('two-way stream with a guest', { timeout: 60_000 }, () => {
  const sessions = new FrameSessions();
  before(() => sessions.listen());
  after(() => sessions.close());

  const begin = async (respond: (call: GuestCall) => void) => {
    const { client, call } = await sessions.open(respond);
    const stream = await client.openStream('files.read', '{"path":"/a"}');
    return { client, stream, call: await call(0) };
  };

  it('has the form that the guest expects, and the head of the guest', async () => {
    const { stream, call } = await begin(echo);
    assert.deepEqual([call.method, call.path, call.body], ['POST', '/streams/files.read', '{"path":"/a"}']);
    assert.equal(stream.head, HEAD);
  });

  it('carries 20 MB in both directions at once, and ends with a result', async () => {
    const { stream } = await begin(echo);
    const content = randomBytes(20_000_000);
    const hash = hashOf(stream.duplex);
    await pipeline(Readable.from([content.subarray(0, 1), content.subarray(1)]), stream.duplex);
    assert.equal(await hash, createHash('sha256').update(content).digest('hex'));
    assert.equal(await stream.result, '{"bytes":20000000}');
  });

  it('the host sends no more than the guest has asked for', async () => {
    let received = 0;
    const { stream, call } = await begin((call) => {
      call.onInput = (bytes) => {
        received += bytes?.length ?? 0;
      };
      call.send(beginOf(call.id, 200));
    });
    const written = pipeline(Readable.from([Buffer.alloc(WINDOW + 5)]), stream.duplex);
    await turns();
    assert.equal(received, WINDOW);
    call.allow(3);
    await turns();
    assert.equal(received, WINDOW + 3);
    call.allow(2);
    call.send(endOf(call.id, { result: null }));
    assert.equal(await readText(stream), '');
    await written;
    await turns();
    assert.equal(received, WINDOW + 5);
  });

  it('a reader that stops makes the guest wait', async () => {
    let sent = 0;
    const { stream, call } = await begin(async (call) => {
      call.send(beginOf(call.id, 200));
      for (; !call.isOver; sent += 50_000) await call.output(sent, Buffer.alloc(50_000));
    });
    await turns();
    assert.ok(sent <= WINDOW + 64 * 1024, `${sent} bytes sent`);
    stream.duplex.destroy();
    await turns();
    assert.ok(call.isCancelled);
  });

  it('a stream that the host cuts is cancelled, and its input is not ended', async () => {
    const inputs: (Buffer | null)[] = [];
    const { stream, call } = await begin((call) => {
      call.onInput = (bytes) => void inputs.push(bytes);
      call.send(beginOf(call.id, 200));
    });
    stream.duplex.write('half');
    stream.duplex.destroy();
    await assert.rejects(stream.result, /cut/);
    await turns();
    assert.deepEqual([call.isCancelled, String(inputs)], [true, 'half']);
  });

  it("the guest's error is the error of the stream, and the session stays open", async () => {
    const { client, stream } = await begin((call) => {
      call.send(beginOf(call.id, 200), endOf(call.id, { error: { code: 'disk_full', detail: 'no room' } }));
    });
    await assert.rejects(stream.result, { code: 'disk_full', message: 'no room' });
    assert.ok(stream.duplex.destroyed);
    const again = await client.openStream('files.write', '{}');
    await assert.rejects(again.result, { code: 'disk_full' });
  });

  it('a guest that refuses or does not know the stream answers with an error', async () => {
    const { client } = await sessions.open((call) =>
      call.answer(404, JSON.stringify({ code: 'not_found', detail: 'no such request' })),
    );
    await assert.rejects(client.openStream('files.read', '{}'), { code: 'not_found', message: 'no such request' });
    await assert.rejects(client.call('files.list', '{}', 1000), { code: 'not_found' });
  });

  it('the end of the session is not the end of the stream', async () => {
    const { client, stream, call } = await begin((call) => call.send(beginOf(call.id, 200)));
    call.send(outputOf(call.id, 0, 'half'));
    client.close();
    await assert.rejects(readText(stream));
    await assert.rejects(stream.result, /session/);
  });

  const violations: Record<string, [(id: number) => Buffer, RegExp]> = {
    'bytes with a gap': [(id) => outputOf(id, 1, 'x'), /stdout at byte 1 of a stream that is at 0/],
    'bytes of stderr': [(id) => outputOf(id, 0, 'x', KIND.stderr), /stderr/],
    'a second beginning': [(id) => beginOf(id, 200), /twice/],
    'credit for bytes that it was not sent': [(id) => frameOf(KIND.inputCredit, id, '\0\0\0\x01'), /more input/],
    'no credit': [(id) => frameOf(KIND.inputCredit, id, '\0\0\0\0'), /granted 0 bytes/],
    'an end that is not JSON': [(id) => frameOf(KIND.end, id, '{'), /not JSON/],
    'more bytes than allowed': [
      (id) => Buffer.concat([0, 1, 2, 3, 4].map((n) => outputOf(id, n * 65_000, Buffer.alloc(65_000)))),
      /without credit/,
    ],
  };
  for (const [what, [bytes, message]] of Object.entries(violations)) {
    it(`${what} ends the session, and the stream with an error (ISO-10)`, async () => {
      const { client, stream, call } = await begin((call) => call.send(beginOf(call.id, 200)));
      call.send(bytes(call.id));
      await assert.rejects(stream.result, message);
      await client.closed;
    });
  }

  it('credit for a call without input ends the session (ISO-10)', async () => {
    const { client } = await sessions.open((call) => call.send(frameOf(KIND.inputCredit, call.id, '\0\0\0\x01')));
    await assert.rejects(client.listJobs(), /a call without output/);
    await client.closed;
  });

  it('a duplex whose error nobody handles ends no process', async () => {
    const { stream, call } = await begin((call) => call.send(beginOf(call.id, 200)));
    const closed = once(stream.duplex, 'close').catch(() => {});
    call.send(endOf(call.id, { error: { code: 'conflict', detail: 'no' } }));
    await closed;
  });
});
