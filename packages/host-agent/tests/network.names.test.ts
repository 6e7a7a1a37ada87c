// Tests the relay for machines' name resolution, with real sockets. Each machine is an address of the loopback network.
import assert from 'node:assert/strict';
import { createSocket, type Socket } from 'node:dgram';
import { once } from 'node:events';
import { mkdtempSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, before, describe, it } from 'node:test';
import dnsPacket from 'dns-packet';
import { openNamePort } from '../src/network/dns/name-port.ts';
import { HostNameServers } from '../src/network/dns/name-servers.ts';
import {
  BURST_QUERIES,
  DnsRelay,
  listenOn,
  MAX_CONNECTIONS_OF_ONE,
  MAX_QUERIES,
  MAX_QUERIES_OF_ONE,
} from '../src/network/dns/relay.ts';
import { until } from './support/fake-host.ts';
import { hostileMessages } from './support/fuzz-names.ts';
import { addressAnswer, askOverTcp, EDNS, NameServer, nameIn, nameQuery } from './support/name-server.ts';
import { enterOwnNetwork } from './support/own-network.ts';

const RELAY = '127.77.0.1';
const [SERVER, OTHER_SERVER] = ['127.77.0.2', '127.77.0.3'];
const [GREEDY, POLITE] = ['127.77.1.1', '127.77.2.1'];

describe('the name relay', { skip: process.getuid?.() !== 0 }, () => {
  const endings: (() => unknown)[] = [];

  before(enterOwnNetwork);
  afterEach(async () => {
    for (const end of endings.splice(0).reverse()) await end();
  });

  async function startRelay(nameServers: () => readonly string[] = () => [SERVER]) {
    const sockets = await listenOn(openNamePort(RELAY));
    const errors: Error[] = [];
    const relay = new DnsRelay(sockets, { nameServers, onError: (error) => errors.push(error) });
    endings.push(() => relay.close());
    return { sockets, errors };
  }

  /** Starts a name server that answers every query, except those for names that begin with `dead`. */
  async function startServer(
    address = SERVER,
    answersOf = (query: Buffer): readonly Buffer[] => (nameIn(query).startsWith('dead') ? [] : [addressAnswer(query)]),
  ) {
    const server = await NameServer.on(address, ({ message }) => answersOf(message));
    endings.push(() => server.close());
    return server;
  }

  async function machine(address: string): Promise<Socket> {
    const socket = createSocket('udp4').bind(0, address);
    await once(socket, 'listening');
    endings.push(() => socket.close());
    return socket;
  }

  const send = (from: Socket, message: Buffer) => new Promise((sent) => from.send(message, 53, RELAY, sent));

  async function ask(from: Socket, message: Buffer): Promise<dnsPacket.DecodedPacket> {
    const answered = once(from, 'message');
    await send(from, message);
    return dnsPacket.decode((await answered)[0]);
  }

  it('passes an ordinary question on, over UDP and TCP, and its answer back', async () => {
    const server = await startServer();
    await startRelay();
    const one = await machine(POLITE);
    const answers = [
      await ask(one, nameQuery('good.test', { id: 7 })),
      ...(await askOverTcp(RELAY, POLITE, [nameQuery('good.test', { id: 7 })])).map((bytes) => dnsPacket.decode(bytes)),
    ];
    for (const { id, answers: records } of answers) {
      assert.equal(id, 7);
      assert.deepEqual(
        records?.map((record) => 'data' in record && record.data),
        ['192.0.2.7'],
      );
    }
    assert.deepEqual(
      server.asked.map(({ over }) => over),
      ['udp', 'tcp'],
    );
    const ids = server.asked.map(({ message }) => message.readUInt16BE(0));
    assert.notDeepEqual(ids, [7, 7], 'the relay asks with ids of its own');
  });

  it('passes nothing but ordinary questions on, and survives whatever it is sent (RES-3)', async () => {
    const server = await startServer();
    await startRelay();
    const one = await machine(GREEDY);
    const hostile = hostileMessages();
    for (const message of Object.values(hostile)) await send(one, message);
    for (const message of Object.values(hostile)) await askOverTcp(RELAY, GREEDY, [message]);
    const other = await machine(POLITE);
    assert.equal((await ask(other, nameQuery('good.test'))).answers?.length, 1);
    assert.equal((await askOverTcp(RELAY, POLITE, [nameQuery('good.test')])).length, 1);
    assert.deepEqual(server.names, ['good.test', 'good.test']);
  });

  it('tells a machine why its query is refused (RES-3)', async () => {
    await startRelay();
    const one = await machine(GREEDY);
    const { transfer, update, 'two questions': two } = hostileMessages();
    for (const [message, rcode] of [
      [transfer, 'REFUSED'],
      [update, 'NOTIMP'],
      [two, 'FORMERR'],
    ] as const)
      assert.equal(((await ask(one, message ?? Buffer.alloc(0))) as { rcode?: string }).rcode, rcode);
  });

  it('ignores a message of a name server that is no answer to the question (RES-3)', async () => {
    await startServer(SERVER, (query) => {
      const right = addressAnswer(query);
      const otherId = addressAnswer(query, '192.0.2.66');
      otherId.writeUInt16BE(right.readUInt16BE(0) ^ 1, 0);
      const forged: dnsPacket.Answer[] = [{ type: 'A', name: 'good.test', ttl: 1, data: '192.0.2.66' }];
      return [
        otherId,
        query,
        right.subarray(0, 11),
        addressAnswer(query, '192.0.2.66', { questions: [{ type: 'A', name: 'evil.test' }] }),
        addressAnswer(query, '192.0.2.66', { questions: [{ type: 'AAAA', name: 'good.test' }] }),
        addressAnswer(query, '192.0.2.66', { questions: [], answers: forged }),
        right,
      ];
    });
    await startRelay();
    const one = await machine(POLITE);
    const { answers } = await ask(one, nameQuery('good.test'));
    assert.deepEqual(
      answers?.map((record) => 'data' in record && record.data),
      ['192.0.2.7'],
    );
  });

  it('tells a machine to use TCP when an answer is larger than it can receive', async () => {
    const long = (query: Buffer) => {
      const texts = Array.from({ length: 10 }, () => 'x'.repeat(100));
      return addressAnswer(query, '', { answers: [{ type: 'TXT', name: 'long.test', ttl: 1, data: texts }] });
    };
    await startServer(SERVER, (query) => [long(query)]);
    await startRelay();
    const one = await machine(POLITE);
    const cut = await ask(one, nameQuery('long.test'));
    assert.deepEqual([cut.flag_tc, cut.answers?.length, cut.questions?.[0]?.name], [true, 0, 'long.test']);
    assert.equal((await ask(one, nameQuery('long.test', { additionals: [EDNS] }))).answers?.length, 1);
    const [whole] = await askOverTcp(RELAY, POLITE, [nameQuery('long.test')]);
    assert.equal(dnsPacket.decode(whole ?? Buffer.alloc(0)).answers?.length, 1);
  });

  it('a machine that sends endless queries does not stop others from resolving names (RES-3)', async () => {
    const server = await startServer();
    await startRelay();
    const [greedy, polite] = [await machine(GREEDY), await machine(POLITE)];
    for (let count = 0; count < 2 * MAX_QUERIES_OF_ONE; count++) await send(greedy, nameQuery('dead.test'));
    assert.equal((await ask(polite, nameQuery('polite.test'))).answers?.length, 1);
    assert.equal(server.names.filter((name) => name === 'dead.test').length, MAX_QUERIES_OF_ONE);
  });

  it('many machines that ask for names without an answer do not stop one more from resolving names (RES-3)', async () => {
    const server = await startServer();
    await startRelay();
    for (let at = 1; at <= MAX_QUERIES / MAX_QUERIES_OF_ONE; at++) {
      const greedy = await machine(`127.77.3.${at}`);
      for (let count = 0; count < MAX_QUERIES_OF_ONE; count++) await send(greedy, nameQuery('dead.test'));
      await until('all its queries are under way', () => server.asked.length === at * MAX_QUERIES_OF_ONE);
    }
    const polite = await machine(POLITE);
    assert.equal((await ask(polite, nameQuery('polite.test'))).answers?.length, 1);
  });

  it('a machine asks no more often than it may (RES-3)', async () => {
    await startRelay();
    const { transfer = Buffer.alloc(0) } = hostileMessages();
    const many = Array.from({ length: 3 * BURST_QUERIES }, () => transfer);
    const answers = await askOverTcp(RELAY, GREEDY, many);
    assert.ok(answers.length >= BURST_QUERIES && answers.length < many.length, `${answers.length} answers`);
    assert.ok((await askOverTcp(RELAY, GREEDY, many)).length < BURST_QUERIES, 'its other connections count too');
    assert.equal((await askOverTcp(RELAY, POLITE, [transfer])).length, 1);
  });

  it('a machine that opens endless connections does not stop others from resolving names over TCP (RES-3)', async () => {
    await startServer();
    await startRelay();
    const open = async (localAddress: string) => {
      const socket = connect({ host: RELAY, port: 53, localAddress }).on('error', () => {});
      endings.push(() => socket.destroy());
      await once(socket, 'connect');
      return socket;
    };
    for (let count = 0; count < MAX_CONNECTIONS_OF_ONE; count++) await open(GREEDY);
    await once((await open(GREEDY)).resume(), 'close');
    assert.equal((await askOverTcp(RELAY, POLITE, [nameQuery('good.test')])).length, 1);
  });

  it('closes a connection whose message is too long or is none (RES-3)', async () => {
    await startRelay();
    assert.deepEqual(await askOverTcp(RELAY, POLITE, [Buffer.alloc(1233)]), []);
    assert.deepEqual(await askOverTcp(RELAY, POLITE, [Buffer.alloc(3)]), []);
  });

  it('goes on after errors of its sockets (RES-3)', async () => {
    await startServer();
    const { sockets, errors } = await startRelay();
    sockets.udp.emit('error', new Error('recvmsg ENOBUFS'));
    sockets.tcp.emit('error', new Error('accept EMFILE'));
    assert.equal(errors.length, 2);
    const one = await machine(POLITE);
    assert.equal((await ask(one, nameQuery('good.test'))).answers?.length, 1);
    assert.equal((await askOverTcp(RELAY, POLITE, [nameQuery('good.test')])).length, 1);
  });

  it('asks the name servers that the host has now (RES-3)', async () => {
    const dir = mkdtempSync(join(tmpdir(), 'sandbar-names-'));
    endings.push(() => rmSync(dir, { recursive: true }));
    const path = join(dir, 'resolv.conf');
    let now = 0;
    const host = new HostNameServers(path, () => now);
    assert.deepEqual(host.current(), ['127.0.0.1'], 'the default without a file');
    const [before, after] = [await startServer(SERVER), await startServer(OTHER_SERVER)];
    await startRelay(() => {
      now += 1000;
      return host.current();
    });
    const one = await machine(POLITE);
    writeFileSync(path, `# x\nnameserver ${SERVER}\nsearch a\n`);
    await ask(one, nameQuery('first.test'));
    writeFileSync(join(dir, 'new'), `nameserver ${OTHER_SERVER}\nnameserver nonsense\n`);
    renameSync(join(dir, 'new'), path);
    await ask(one, nameQuery('second.test'));
    rmSync(path);
    await ask(one, nameQuery('third.test'));
    assert.deepEqual([before.names, after.names], [['first.test'], ['second.test', 'third.test']]);
  });
});
