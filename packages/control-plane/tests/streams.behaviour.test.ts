// Tests the limits on event streams: their memory, their reads from the host and their number for each account. Also
// tests that a stream closes when its API key expires or is revoked, or when its user signs out.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import { insertKey } from '../src/api-keys/store.ts';
import { openStream, serverSockets } from './support/event-stream.ts';
import { until } from './support/postgres.ts';
import { startTestBed, TEST_ORIGIN } from './support/test-bed.ts';

const STREAMS = 40;
const bed = await startTestBed({ replicas: 2, bounds: { streamsPerAccount: STREAMS } });
const { api, host, plane } = bed;
const [, second = plane] = bed.replicas;
const { db } = plane.app;
const machine: string = (await api('POST', '/v1/machines')).json.id;
const startJob = async (command: string): Promise<string> =>
  (await api<Exec>('POST', `/v1/machines/${machine}/execs`, { body: { command } })).json.id;
const outputOf = (job: string) => `/v1/machines/${machine}/execs/${job}/output`;
const withKey = (key: string) => ({ authorization: `Bearer ${key}` });
const open = (job: string, key = bed.keys.full, on = plane) => openStream(on, outputOf(job), withKey(key));
const unread: Socket[] = [];
after(() => {
  for (const socket of unread) socket.destroy();
});

describe('event streams that nobody reads', () => {
  it('keep one page of 32 KiB each in memory, whatever limit they ask for (RES-10)', async () => {
    const job = await startJob(`bytes ${16 * 1024 * 1024}`);
    const { port } = plane.address;
    const count = 4;
    for (let index = 0; index < count; index++) {
      const socket = connect(port, '127.0.0.1').on('error', () => undefined);
      unread.push(socket);
      socket.pause();
      await once(socket, 'connect');
      // Each stream begins at another offset, so that no two streams share a page.
      const path = `${outputOf(job)}?limit=1048576&offset=${index * 1000}`;
      socket.write(
        `GET ${path} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nauthorization: Bearer ${bed.keys.full}\r\n\r\n`,
      );
    }
    const kept = () =>
      serverSockets(port)
        .map(({ writableLength }) => writableLength)
        .filter((bytes) => bytes > 0);
    await until(() => kept().length === count, 'no stream can send more');
    // Base64 turns three bytes into four.
    const mostOfOne = 32 * 1024 * (4 / 3) + 1024;
    assert(Math.max(...kept()) <= mostOfOne, `at most ${mostOfOne} bytes for a stream, not ${Math.max(...kept())}`);
    for (const socket of unread) socket.destroy();
    await until(() => kept().length === 0, 'the streams are closed');
  });
});

describe('event streams of one job', () => {
  it('share the reads of the host and get the same bytes (RES-10)', async () => {
    const job = await startJob('sleep');
    const streams = await Promise.all(Array.from({ length: STREAMS }, () => open(job)));
    const before = host.callsOf('output');
    const pieces = 20;
    for (let piece = 0; piece < pieces; piece++) {
      host.append(machine, job, Buffer.from(`piece ${piece};`));
      const sent = () => streams.every(({ events }) => events.at(-1)?.data.endsWith(`piece ${piece};`));
      await until(sent, 'every stream has the piece');
    }
    const reads = host.callsOf('output') - before;
    assert(reads < 4 * pieces, `${STREAMS} streams took ${reads} reads of the host for ${pieces} pieces`);
    host.endJob(machine, job);
    await Promise.all(streams.map(({ ended }) => ended));
    const whole = Array.from({ length: pieces }, (_, piece) => `piece ${piece};`).join('');
    for (const { events } of streams) {
      assert.equal(events.map(({ data }) => data).join(''), whole);
      assert.equal(events.at(-1)?.eof, true);
    }
  });

  it('go on for the others when the one that asked the host first has gone (RES-10)', async () => {
    const job = await startJob('sleep');
    const first = await open(job);
    const others = await Promise.all([open(job), open(job)]);
    first.close();
    await first.ended;
    host.append(machine, job, Buffer.from('still here'));
    host.endJob(machine, job);
    await Promise.all(others.map(({ ended }) => ended));
    for (const { events } of others) assert.equal(events.map(({ data }) => data).join(''), 'still here');
  });
});

describe('the event streams of an account', () => {
  it('are bounded: one more is 429, until one ends; other accounts have their own (RES-10)', async () => {
    const job = await startJob('sleep');
    const streams = await Promise.all(Array.from({ length: STREAMS }, () => open(job)));
    assert(streams.every(({ status }) => status === 200));
    const refused = await api('GET', outputOf(job), { headers: { accept: 'text/event-stream' } });
    assert.deepEqual([refused.status, refused.json.code], [429, 'rate_limited']);
    assert.match(refused.json.detail, /has 40 open event streams/);
    assert(refused.headers.get('retry-after'));
    const nowhere = outputOf('019b0000-0000-7000-8000-00000000dead');
    const early = await api('GET', nowhere, { headers: { accept: 'text/event-stream' } });
    assert.equal(early.status, 429, 'refused before the job is looked up');
    assert.equal((await api('GET', outputOf(job))).status, 200, 'a page is not a stream');
    const asOther = (headers: object) => api('GET', outputOf(job), { key: bed.keys.other, headers: { ...headers } });
    assert.equal((await asOther({ accept: 'text/event-stream' })).status, 404, 'not 429');
    streams[0]?.close();
    await until(async () => {
      const again = await open(job);
      again.close();
      return again.status === 200;
    }, 'the place is free');
    host.endJob(machine, job);
    await Promise.all(streams.map(({ ended }) => ended));
  });

  it('give their places back also when they waited behind others on a connection that closed (RES-10)', async () => {
    const job = await startJob('sleep');
    const { address } = plane;
    const socket = connect(address.port, address.host).on('error', () => undefined);
    const request = `GET ${outputOf(job)} HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nauthorization: Bearer ${bed.keys.full}\r\n\r\n`;
    socket.write(request.repeat(STREAMS));
    // A stream that is opened here may get a place before one of the requests above. So it stays open.
    const others: Awaited<ReturnType<typeof open>>[] = [];
    const isFull = async () => {
      const stream = await open(job);
      others.push(stream);
      return stream.status === 429;
    };
    await until(isFull, 'all places are taken');
    socket.destroy();
    for (const { close } of others) close();
    await until(async () => {
      const streams = await Promise.all(Array.from({ length: STREAMS }, () => open(job)));
      for (const { close } of streams) close();
      await Promise.all(streams.map(({ ended }) => ended));
      return streams.every(({ status }) => status === 200);
    }, 'all places are free');
    host.endJob(machine, job);
  });
});

describe('an open stream ends when its credential ends', () => {
  it('by the revocation of its key, on every replica, and no other stream ends (RES-13)', async () => {
    const job = await startJob('sleep');
    const key = await insertKey(db, bed.accountId, 'read', 'to be revoked');
    const [here, there, other] = await Promise.all([open(job, key), open(job, key, second), open(job)]);
    const poll = api('GET', `${outputOf(job)}?wait_ms=60000`, { key });
    const read = () => host.append(machine, job, Buffer.from('x'));
    read();
    await until(() => [here, there, other].every(({ events }) => events.length > 0), 'all are open');
    assert.equal((await poll).status, 200);
    const size = (await api('GET', outputOf(job))).json.total_bytes;
    const longPoll = api('GET', `${outputOf(job)}?wait_ms=60000&offset=${size}`, { key });
    await db.deleteFrom('api_keys').where('name', '=', 'to be revoked').execute();
    await Promise.all([here.ended, there.ended]);
    const { status, json } = await longPoll;
    assert.deepEqual([status, json.code], [401, 'unauthenticated']);
    read();
    await until(() => other.events.map(({ data }) => data).join('') === 'xx', 'the other stream goes on');
    assert.equal(here.events.map(({ data }) => data).join(''), 'x');
    host.endJob(machine, job);
    await other.ended;
  });

  it('by the expiry of its key (RES-13)', async () => {
    const job = await startJob('sleep');
    const key = await insertKey(db, bed.accountId, 'read', 'to expire');
    const stream = await open(job, key);
    await db.updateTable('api_keys').set({ expires_at: new Date() }).where('name', '=', 'to expire').execute();
    await stream.ended;
    host.endJob(machine, job);
  });

  it('by a sign-out on another replica (RES-13)', async () => {
    const job = await startJob('sleep');
    const cookie = await bed.session();
    const stream = await openStream(plane, outputOf(job), { cookie });
    assert.equal(stream.status, 200);
    const headers = { cookie, origin: TEST_ORIGIN };
    assert.equal((await api('POST', '/v1/auth/sign-out', { key: null, headers, plane: second })).status, 204);
    await stream.ended;
    host.endJob(machine, job);
  });
});
