// Tests how a replica stops: what it still does, in which order, and what each kind of client sees.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { type IncomingMessage, request as openRequest } from 'node:http';
import { after, describe, it } from 'node:test';
import type { Exec } from '@sandbar/contract/exec.ts';
import type { Timing } from '../src/config.ts';
import type { ControlPlane } from '../src/control-plane.ts';
import { FakeTerminals } from './support/fake-terminals.ts';
import { guestEntry } from './support/guest-files.ts';
import { type PlayedStream, playStream } from './support/guest-stream.ts';
import { until } from './support/postgres.ts';
import { Programs } from './support/programs.ts';
import { connect } from './support/terminal-client.ts';
import { startTestBed } from './support/test-bed.ts';

const bed = await startTestBed();
const { api, host, keys } = bed;
after(() => host.heal());
const machine: string = (await api('POST', '/v1/machines')).json.id;
const execs = `/v1/machines/${machine}/execs`;
const startJob = async (command: string): Promise<string> =>
  (await api<Exec>('POST', execs, { body: { command } })).json.id;

const LONG_MS = 60_000;
/** Starts a replica that a test stops. Requests have more time than any test takes, unless it says otherwise. */
const newReplica = (timing: Partial<Timing> = {}) => bed.addReplica({ shutdownMs: LONG_MS, ...timing });
const isReady = async ({ metricsAddress: { host, port } }: ControlPlane): Promise<boolean> =>
  (await fetch(`http://${host}:${port}/readyz`)).ok;

/** Keeps a replica in its shutdown, because a create is not finished. Call `host.heal()` to end it. */
async function holdCreate(plane: ControlPlane): Promise<{ creating: Promise<number> }> {
  const before = host.callsOf('ensure');
  host.fault('ensure', 'hang', 1);
  const creating = api('POST', '/v1/machines', { plane }).then(({ status }) => status);
  await until(() => host.callsOf('ensure') > before, 'the create is under way');
  return { creating };
}

/** Begins to stop a replica, and waits until it refuses requests. */
async function beginToStop(plane: ControlPlane): Promise<{ stopped: Promise<void> }> {
  const stopped = plane.close();
  await until(() => plane.app.closing.aborted, 'the shutdown has begun');
  return { stopped };
}

describe('a replica that is asked to stop', () => {
  it('first is not ready and serves on, then refuses new requests and finishes those under way', async () => {
    const plane = await newReplica({ drainMs: 1_500 });
    assert.equal(await isReady(plane), true);
    const { creating } = await holdCreate(plane);
    const stopped = plane.close();
    await until(async () => !(await isReady(plane)), 'it says no');
    const served = await api('GET', `/v1/machines/${machine}`, { plane });
    assert.deepEqual([served.status, served.headers.get('connection')], [200, 'close']);
    await until(() => plane.app.closing.aborted, 'it refuses new requests');
    const refused = await api('POST', '/v1/machines', { plane });
    assert.deepEqual([refused.status, refused.json.code], [503, 'shutting_down']);
    assert.deepEqual([refused.headers.get('retry-after'), refused.headers.get('connection')], ['2', 'close']);
    const { address } = plane;
    const preview = await new Promise<IncomingMessage>((resolve) => {
      const name = `8000-${machine}.localhost`;
      openRequest({ host: address.host, port: address.port, headers: { host: name } }, resolve).end();
    });
    assert.deepEqual([preview.statusCode, preview.headers['retry-after']], [503, '2']);
    host.heal();
    assert.equal(await creating, 201);
    await stopped;
    await assert.rejects(fetch(`http://${address.host}:${address.port}/`), 'nobody listens any more');
  });

  it('answers long polls at once with what there is', async () => {
    const plane = await newReplica();
    const job = await startJob('print so far');
    host.endJob(machine, job);
    const running = await startJob('sleep');
    host.append(machine, running, Buffer.from('begun'));
    const { creating } = await holdCreate(plane);
    const reads = host.callsOf('output') + host.callsOf('getJob');
    const polls = [
      api('GET', `${execs}/${running}/output?wait_ms=60000&offset=5`, { plane }),
      api('GET', `${execs}/${running}?wait_ms=60000`, { plane }),
      api('POST', `${execs}?wait_ms=60000`, { plane, body: { command: 'sleep' } }),
    ];
    await until(() => host.callsOf('output') + host.callsOf('getJob') >= reads + 3, 'all of them wait');
    const { stopped } = await beginToStop(plane);
    const [output, exec, started] = await Promise.all(polls);
    assert.deepEqual([output?.status, output?.json.next_offset, output?.json.eof], [200, 5, false]);
    assert.deepEqual([exec?.status, exec?.json.status], [200, 'running']);
    assert.deepEqual([started?.status, started?.json.status], [201, 'running']);
    host.endJob(machine, running);
    host.endJob(machine, started?.json.id);
    host.heal();
    await Promise.all([creating, stopped]);
  });

  it('ends event streams with a hint to come back soon, and what was sent is whole', async () => {
    const plane = await newReplica();
    const job = await startJob('sleep');
    host.append(machine, job, Buffer.from('before'));
    // Not with fetch: when the connection is closed, it drops what it has not passed on yet.
    const { host: hostname, port } = plane.address;
    const headers = { authorization: `Bearer ${keys.full}`, accept: 'text/event-stream' };
    const response = await new Promise<IncomingMessage>((resolve) => {
      openRequest({ hostname, port, path: `${execs}/${job}/output`, headers }, resolve).end();
    });
    let text = '';
    response.setEncoding('utf8').on('data', (part: string) => {
      text += part;
    });
    // The connection is closed after the hint, without an end of the answer.
    response.on('error', () => undefined);
    const closed = new Promise((resolve) => response.once('close', resolve));
    await until(() => text.includes('data: '), 'the page has come');
    const { stopped } = await beginToStop(plane);
    await closed;
    assert.match(text, /^id: 6\ndata: .*\n\n(:\n\n)*retry: 250\n\n$/);
    await stopped;
    host.endJob(machine, job);
  });

  it('closes terminals with 1012, and they go on elsewhere', async () => {
    const terminals = new FakeTerminals(host);
    const plane = await newReplica();
    const session = async (body: object) =>
      (await api('POST', `/v1/machines/${machine}/terminal-session`, { body })).json;
    const { ticket, terminal_id } = await session({});
    const client = await connect(plane, machine, ticket);
    await terminals.all.get(terminal_id)?.print('one ');
    await client.sees('one');
    const { stopped } = await beginToStop(plane);
    assert.equal((await client.ends()).code, 1012);
    await stopped;
    const again = await connect(bed.plane, machine, (await session({ terminal_id })).ticket);
    await terminals.all.get(terminal_id)?.print('two');
    await again.sees('one two');
    again.socket.terminate();
  });

  it('lets uploads, downloads and requests to ports finish', async () => {
    const plane = await newReplica();
    const reading = playStream({ entry: guestEntry({ size: 9 }), start: 0, length: 9, etag: 'v1' });
    host.guestStreams['files.read'] = () => reading;
    const written: Buffer[] = [];
    host.guestStreams['files.write'] = () => {
      const stream = playStream({});
      stream.guest.on('data', (chunk: Buffer) => written.push(chunk));
      stream.guest.once('end', () => stream.finish({ entry: guestEntry({ size: 9 }), created: true, etag: 'v1' }));
      return stream;
    };
    const programs = new Programs(host);
    const { promise: proceed, resolve: answerNow } = Promise.withResolvers<void>();
    let isAsked = false;
    await programs.serve(machine, 8000, async (_request, response) => {
      isAsked = true;
      await proceed;
      response.end('from the machine');
    });
    const send = (method: string, path: string, headers: object = {}) =>
      openRequest({
        ...{ host: plane.address.host, port: plane.address.port, method, path, agent: false },
        headers: { authorization: `Bearer ${keys.full}`, ...headers },
      });
    const file = `/v1/machines/${machine}/files/content?path=/root/hello.txt`;
    const upload = send('PUT', file, { 'content-length': 9 });
    upload.write('some ');
    const download = send('GET', file);
    download.end();
    reading.guest.write('some ');
    const [downloading] = (await once(download, 'response')) as [IncomingMessage];
    const name = `8000-${machine}.localhost`;
    const toPort = send('GET', '/', { host: name, 'x-sandbar-key': keys.full });
    toPort.end();
    await until(() => written.length > 0 && isAsked, 'all are under way');

    const { stopped } = await beginToStop(plane);
    upload.end('more');
    reading.guest.write('more');
    reading.finish({});
    answerNow();
    const [[uploaded], [answered]] = (await Promise.all([once(upload, 'response'), once(toPort, 'response')])) as [
      [IncomingMessage],
      [IncomingMessage],
    ];
    const textOf = async (response: IncomingMessage) => Buffer.concat(await response.toArray()).toString();
    assert.deepEqual([uploaded.statusCode, Buffer.concat(written).toString()], [200, 'some more']);
    uploaded.resume();
    assert.equal(await textOf(downloading), 'some more');
    assert.equal(await textOf(answered), 'from the machine');
    await stopped;
  });

  it('cuts off what takes too long', async () => {
    const plane = await newReplica({ shutdownMs: 300 });
    let stream: PlayedStream | undefined;
    host.guestStreams['files.write'] = () => {
      stream = playStream({});
      stream.guest.resume();
      return stream;
    };
    const path = `/v1/machines/${machine}/files/content?path=/root/hello.txt`;
    const upload = openRequest({
      ...{ host: plane.address.host, port: plane.address.port, method: 'PUT', path, agent: false },
      headers: { authorization: `Bearer ${keys.full}`, 'content-length': 9 },
    });
    upload.write('some');
    await until(() => stream !== undefined, 'the guest takes it');
    const answer = once(upload, 'response') as Promise<[IncomingMessage]>;
    await plane.close();
    const [{ statusCode }] = await answer;
    assert.equal(statusCode, 503);
    await until(() => stream?.duplex.destroyed === true, 'the guest learns that it did not get the whole');
  });
});
