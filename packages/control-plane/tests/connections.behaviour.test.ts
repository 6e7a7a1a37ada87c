// Tests of the limits on TCP connections: clients without a credential cannot use up the connections of accounts, and
// no account can use up those of another. Clients use different loopback addresses (127.0.0.2 and so on), which count
// as different clients.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { after, describe, it } from 'node:test';
import type { ControlPlane } from '../src/control-plane.ts';
import { serverSockets } from './support/event-stream.ts';
import { until } from './support/postgres.ts';
import { startTestBed } from './support/test-bed.ts';

const bounds = { connections: 60, connectionsPerAddress: 10, connectionsPerAccount: 5 };
const bed = await startTestBed({ bounds, config: { trustProxy: '127.0.0.9' } });
const impatient = await startTestBed({ timing: { headersMs: 200 } });
const { api, host, keys } = bed;
const machine: string = (await api('POST', '/v1/machines')).json.id;
/** Long polls of different jobs, so that each makes a call to the host: polls of one job would share a call. */
const LONG_POLLS: string[] = [];
for (const on of [machine, (await api('POST', '/v1/machines')).json.id as string]) {
  for (let count = 0; count < 10; count++) {
    const { id } = (await api('POST', `/v1/machines/${on}/execs`, { body: { command: 'sleep' } })).json;
    LONG_POLLS.push(`/v1/machines/${on}/execs/${id}?wait_ms=60000`);
  }
}

type Client = { socket: Socket; received: () => string; isOpen: () => boolean };
const clients: Client[] = [];
after(() => closeAll());

/** Closes all connections and waits until the server has noticed. */
async function closeAll(): Promise<void> {
  const ports = new Set(clients.map(({ socket }) => socket.localPort));
  for (const { socket } of clients.splice(0)) socket.destroy();
  const { port } = bed.plane.address;
  await until(() => !serverSockets(port).some(({ remotePort }) => ports.has(remotePort)), 'the server has closed them');
}

async function open(localAddress: string, plane: ControlPlane = bed.plane): Promise<Client> {
  const socket = connect({ port: plane.address.port, host: plane.address.host, localAddress });
  let received = '';
  let isOpen = true;
  socket.on('data', (data) => {
    received += data;
  });
  socket.on('error', () => undefined);
  socket.on('close', () => {
    isOpen = false;
  });
  await once(socket, 'connect');
  const client = { socket, received: () => received, isOpen: () => isOpen };
  clients.push(client);
  return client;
}

const send = (client: Client, path: string, key: string) =>
  client.socket.write(`GET ${path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer ${key}\r\n\r\n`);
const answers = (client: Client): number => client.received().match(/HTTP\/1\.1 /g)?.length ?? 0;

/** Sends a GET on the connection and returns the status of its answer. */
async function get(client: Client, key = keys.full): Promise<string | undefined> {
  const before = answers(client);
  send(client, '/v1/quotas', key);
  await until(() => answers(client) > before || !client.isOpen(), 'it is answered');
  return client.received().match(/HTTP\/1\.1 (\d+)/g)?.[before];
}

/** Opens idle connections one after the other, and waits until the server has seen them all. */
async function flood(address: string, count: number): Promise<Client[]> {
  const opened: Client[] = [];
  for (let index = 0; index < count; index++) opened.push(await open(address));
  const { port } = bed.plane.address;
  await until(() => {
    const held = new Set(serverSockets(port).map(({ remotePort }) => remotePort));
    return opened.every(({ socket, isOpen }) => !isOpen() || held.has(socket.localPort));
  }, 'the server has seen every connection');
  return opened;
}
const countOpen = (all: Client[]): number => all.filter(({ isOpen }) => isOpen()).length;

describe('connections of strangers', () => {
  it('of one address: the oldest is closed for a new one, and who has a key gets in (RES-10)', async () => {
    const strangers = await flood('127.0.0.2', 40);
    await until(() => countOpen(strangers) === 10, 'ten are left');
    assert(strangers.slice(-10).every(({ isOpen }) => isOpen()));
    const client = await open('127.0.0.2');
    assert.equal(await get(client), 'HTTP/1.1 200');
    await flood('127.0.0.2', 20);
    assert.equal(await get(client), 'HTTP/1.1 200', 'on the same connection as before');
    await closeAll();
  });

  it('of many addresses take at most a quarter of the places, and no connection of an account is closed (RES-10)', async () => {
    const owners = [await open('127.0.0.2'), await open('127.0.0.3')];
    for (const client of owners) assert.equal(await get(client), 'HTTP/1.1 200');
    for (let address = 10; address < 20; address++) await flood(`127.0.0.${address}`, 10);
    const held = () => serverSockets(bed.plane.address.port).length;
    // Three connections are no strangers: those of the two owners and that of the test bed.
    await until(() => held() <= bounds.connections / 4 + 3, 'the strangers have a quarter');
    for (const client of owners) assert.equal(await get(client), 'HTTP/1.1 200');
    assert.equal(await get(await open('127.0.0.4'), keys.other), 'HTTP/1.1 200', 'a new client gets in');
    await closeAll();
  });

  it('of a trusted proxy are not counted as those of one client (RES-10)', async () => {
    const proxied = await flood('127.0.0.9', 14);
    assert.equal(countOpen(proxied), 14);
    await closeAll();
  });

  it('that say nothing are closed (RES-10)', async () => {
    const silent = await open('127.0.0.2', impatient.plane);
    const half = await open('127.0.0.2', impatient.plane);
    half.socket.write('GET / HTTP/1.1\r\nhost:');
    await until(() => !silent.isOpen() && !half.isOpen(), 'both are closed');
    assert.match(half.received(), /^HTTP\/1\.1 408 /);
    await closeAll();
  });
});

describe('connections of one account', () => {
  it('are bounded: for one more, the one that is idle for the longest time is closed (RES-10)', async () => {
    const first = await open('127.0.0.2');
    assert.equal(await get(first), 'HTTP/1.1 200');
    const others: Client[] = [];
    for (let index = 0; index < 5; index++) {
      const client = await open('127.0.0.2');
      assert.equal(await get(client), 'HTTP/1.1 200');
      others.push(client);
    }
    await until(() => !first.isOpen(), 'the first is closed');
    assert.equal(countOpen(others), 5);
    await closeAll();
  });

  it('that all wait for an answer: one more request is 429, and other accounts have their own (RES-10)', async () => {
    const waits = host.callsOf('getJob');
    for (const poll of LONG_POLLS.slice(0, 5)) send(await open('127.0.0.2'), poll, keys.full);
    await until(() => host.callsOf('getJob') === waits + 5, 'all wait');
    const refused = await open('127.0.0.2');
    assert.equal(await get(refused), 'HTTP/1.1 429');
    assert.match(refused.received(), /"code":"rate_limited"/);
    assert.match(refused.received(), /retry-after: 1/i);
    await until(() => !refused.isOpen(), 'its connection is closed');
    assert.equal(await get(await open('127.0.0.2'), keys.other), 'HTTP/1.1 200');
    await closeAll();
    const again = async () => (await get(await open('127.0.0.2'))) === 'HTTP/1.1 200';
    await until(again, 'the places are free when the requests end');
    await closeAll();
  });

  it('cannot carry more unfinished requests by sending them without waiting for answers (RES-10)', async () => {
    const waits = host.callsOf('getJob');
    // The second round shows that the queued requests of the first round are no longer counted.
    for (const round of [1, 2]) {
      const client = await open('127.0.0.2');
      for (const poll of LONG_POLLS) send(client, poll, keys.full);
      await until(() => host.callsOf('getJob') === waits + round * 5, 'five wait');
      assert.equal(await get(await open('127.0.0.2')), 'HTTP/1.1 429');
      assert.equal(host.callsOf('getJob'), waits + round * 5);
      await closeAll();
    }
  });
});
