// Tests the session handshake on a virtio-serial port, which has no connections of its own: bytes of an earlier session
// must never reach a new session.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { after, before, describe, it } from 'node:test';
import { openSession } from '../src/guest/channel.ts';
import { GREETING, newChannelToken } from '../src/guest/channel-token.ts';

describe('guest channel', () => {
  const path = `/tmp/sandbar-channel-${process.pid}.sock`;
  const token = newChannelToken();
  const server = createServer();
  before(() => new Promise<void>((resolve) => server.listen(path, resolve)));
  after(() => server.close());

  async function connectPair(): Promise<{ host: Socket; guest: Socket }> {
    const accepted = once(server, 'connection');
    const host = connect(path);
    const [guest] = (await accepted) as [Socket];
    return { host, guest };
  }

  it('discards everything before the echo and keeps everything after it, however the bytes are split', async () => {
    const { host, guest } = await connectPair();
    const opened = openSession(host, token, AbortSignal.timeout(5000));
    const [hello] = (await once(guest, 'data')) as [Buffer];
    const echo = hello.subarray(GREETING.length);
    assert.deepEqual(hello.subarray(0, GREETING.length), GREETING);
    assert.equal(echo.subarray(0, 32).toString('hex'), token);
    const stale = Buffer.concat([Buffer.from('old bytes'), echo.subarray(0, 36), Buffer.from('more')]);
    for (const byte of Buffer.concat([stale, echo, Buffer.from('new session')])) guest.write(Buffer.from([byte]));
    assert.equal(await opened, 'http2');
    guest.end();
    const rest: Buffer[] = [];
    for await (const chunk of host) rest.push(chunk as Buffer);
    assert.equal(Buffer.concat(rest).toString(), 'new session');
  });

  it('an agent that inverts the epoch in its echo speaks frames, however the bytes are split', async () => {
    const { host, guest } = await connectPair();
    const opened = openSession(host, token, AbortSignal.timeout(5000));
    const [hello] = (await once(guest, 'data')) as [Buffer];
    const echo = hello.subarray(GREETING.length);
    const inverted = Buffer.concat([echo.subarray(0, 32), Buffer.from(echo.subarray(32).map((byte) => byte ^ 0xff))]);
    const stale = Buffer.concat([Buffer.from('old bytes'), inverted.subarray(0, 36), Buffer.from('more')]);
    for (const byte of Buffer.concat([stale, inverted, Buffer.from('frames')])) guest.write(Buffer.from([byte]));
    assert.equal(await opened, 'frames');
    guest.end();
    const rest: Buffer[] = [];
    for await (const chunk of host) rest.push(chunk as Buffer);
    assert.equal(Buffer.concat(rest).toString(), 'frames');
  });

  it('a guest agent of version 0.1.0, which takes the greeting for its token, gets a session too', async () => {
    const { host, guest } = await connectPair();
    const opened = openSession(host, token, AbortSignal.timeout(5000));
    const [hello] = (await once(guest, 'data')) as [Buffer];
    // Such an agent echoes the greeting and the next 8 bytes as token and epoch. It takes the remaining bytes for
    // HTTP/2 and answers with an error.
    guest.write(Buffer.concat([hello.subarray(0, GREETING.length + 8), Buffer.from('GOAWAY')]));
    const [again] = (await once(guest, 'data')) as [Buffer];
    assert.deepEqual([again.length, again.subarray(0, -8)], [GREETING.length + 8, GREETING]);
    guest.end(Buffer.concat([again, Buffer.from('new session')]));
    assert.equal(await opened, 'http2');
    const rest: Buffer[] = [];
    for await (const chunk of host) rest.push(chunk as Buffer);
    assert.equal(Buffer.concat(rest).toString(), 'new session');
  });

  it('an echo with another epoch does not open a session', async () => {
    const { host, guest } = await connectPair();
    const opened = openSession(host, token, AbortSignal.timeout(300));
    const [hello] = (await once(guest, 'data')) as [Buffer];
    guest.write(Buffer.concat([hello.subarray(GREETING.length, -8), Buffer.alloc(8)]));
    await assert.rejects(opened, /did not answer in time/);
    guest.destroy();
  });

  it('a port that closes before the echo is an error', async () => {
    const { host, guest } = await connectPair();
    const opened = openSession(host, token, AbortSignal.timeout(5000));
    await once(guest, 'data');
    guest.destroy();
    await assert.rejects(opened, /closed before/);
  });

  it('a guest that sends without end and never answers is given up before the time is over (ISO-10)', async () => {
    const { host, guest } = await connectPair();
    const opened = openSession(host, token, new AbortController().signal);
    guest.on('error', () => {});
    const flood = () => {
      while (!guest.destroyed && guest.write(Buffer.alloc(65_536)));
    };
    guest.on('drain', flood);
    flood();
    await assert.rejects(opened, /sends, but does not answer/);
    guest.destroy();
  });
});
