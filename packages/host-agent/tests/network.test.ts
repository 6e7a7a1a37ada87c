// Tests addresses, and the relay for machines' name resolution.
import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';
import { describe, it } from 'node:test';
import {
  hostNameServers,
  MAX_CONNECTIONS_OF_ONE,
  MAX_QUERIES_OF_ONE,
  sendAnswer,
  startDnsRelay,
} from '../src/network/dns-relay.ts';
import { chooseSubnet, macOfIp, parseRanges, parseSubnet } from '../src/network/subnet.ts';

describe('network', () => {
  it('the chosen subnet avoids those in use and is always the same for a data directory', () => {
    const first = chooseSubnet('/var/lib/sandbar', []);
    assert.equal(chooseSubnet('/var/lib/sandbar', []), first);
    const base = first.replace('0.0/16', '7.7');
    assert.notEqual(chooseSubnet('/var/lib/sandbar', [base]), first);
    const all = Array.from({ length: 127 }, (_, at) => `10.${128 + at}.0.1`);
    assert.throws(() => chooseSubnet('/var/lib/sandbar', all), /set SANDBAR_SUBNET/);
  });

  it('an invalid subnet is refused', () => {
    assert.deepEqual(parseSubnet('10.200.0.0/16').gateway, '10.200.0.1');
    for (const bad of ['10.200.0.0', '10.200.0.1/16', '300.1.0.0/16', '10.0.0.0/30', 'fd00::/8', '']) {
      assert.throws(() => parseSubnet(bad), /SANDBAR_SUBNET/, bad);
    }
  });

  it('the MAC address is derived from the IP address', () => {
    assert.equal(macOfIp('10.200.1.255'), '02:5b:0a:c8:01:ff');
  });

  it('name servers come from resolv.conf', () => {
    assert.deepEqual(hostNameServers('# x\nnameserver 1.2.3.4\n nameserver ::1\nsearch a\n'), ['1.2.3.4', '::1']);
    assert.deepEqual(hostNameServers(''), ['127.0.0.1']);
  });

  it('the relay passes queries on unchanged and survives garbage and silence', {
    skip: process.getuid?.() !== 0,
  }, async () => {
    const upstream = createSocket('udp4');
    upstream.on('message', (query, from) => {
      if (query.toString() !== 'silence') upstream.send(`answer to ${query}`, from.port, from.address);
    });
    upstream.bind(53, '127.77.0.2');
    await once(upstream, 'listening');
    const relay = await startDnsRelay('127.77.0.1', ['127.77.0.2']);
    const client = createSocket('udp4');
    client.send('silence', 53, '127.77.0.1');
    for (const query of ['one', 'two']) {
      client.send(query, 53, '127.77.0.1');
      const [answer] = (await once(client, 'message')) as [Buffer];
      assert.equal(answer.toString(), `answer to ${query}`);
    }
    client.close();
    await relay.close();
    upstream.close();
  });

  it('a machine that sends endless queries does not stop others from resolving names', {
    skip: process.getuid?.() !== 0,
  }, async () => {
    const asked: string[] = [];
    const upstream = createSocket('udp4');
    upstream.on('message', (query, from) => {
      asked.push(query.toString());
      if (query.toString() === 'polite') upstream.send('answer', from.port, from.address);
    });
    upstream.bind(53, '127.77.1.2');
    await once(upstream, 'listening');
    const relay = await startDnsRelay('127.77.1.1', ['127.77.1.2']);
    const greedy = createSocket('udp4').bind(0, '127.77.1.3');
    const polite = createSocket('udp4').bind(0, '127.77.1.4');
    for (let count = 0; count < 2 * MAX_QUERIES_OF_ONE; count++) {
      await new Promise((sent) => greedy.send('greedy', 53, '127.77.1.1', sent));
    }
    polite.send('polite', 53, '127.77.1.1');
    assert.equal(String((await once(polite, 'message'))[0]), 'answer');
    assert.equal(asked.filter((query) => query === 'greedy').length, MAX_QUERIES_OF_ONE);
    greedy.close();
    polite.close();
    await relay.close();
    upstream.close();
  });

  it('a machine that opens endless connections does not stop others from resolving names over TCP', {
    skip: process.getuid?.() !== 0,
  }, async () => {
    const upstream = createServer((socket) => socket.pipe(socket));
    upstream.listen(53, '127.77.2.2');
    await once(upstream, 'listening');
    const relay = await startDnsRelay('127.77.2.1', ['127.77.2.2']);
    const ask = (localAddress: string) => {
      const socket = connect({ host: '127.77.2.1', port: 53, localAddress });
      socket.write('x');
      socket.on('error', () => {});
      return Promise.race([
        once(socket, 'data').then(() => ({ isAnswered: true, socket })),
        once(socket, 'close').then(() => ({ isAnswered: false, socket })),
      ]);
    };
    const greedy = [];
    for (let count = 0; count < MAX_CONNECTIONS_OF_ONE; count++) greedy.push(await ask('127.77.2.3'));
    assert.ok(greedy.every(({ isAnswered }) => isAnswered));
    assert.equal((await ask('127.77.2.3')).isAnswered, false);
    const polite = await ask('127.77.2.4');
    assert.equal(polite.isAnswered, true);
    for (const { socket } of [...greedy, polite]) socket.destroy();
    await relay.close();
    upstream.close();
  });

  it('allowed ranges must be IPv4 ranges', () => {
    assert.deepEqual(parseRanges(''), []);
    assert.deepEqual(parseRanges('10.1.0.0/16, 192.168.7.9'), ['10.1.0.0/16', '192.168.7.9/32']);
    for (const bad of ['10.1.0.0/33', '10.1.0.1/16', 'fd00::/8', 'intranet', '10.1.0.0/16/8', '10.1/16', '10.1.0.0/']) {
      assert.throws(() => parseRanges(bad), /SANDBAR_NETWORK_ALLOW/, bad);
    }
  });

  it('an answer to port 0 or to a refused address is dropped', async () => {
    const udp = createSocket('udp4');
    udp.bind(0, '127.0.0.1');
    await once(udp, 'listening');
    udp.on('error', (error) => assert.fail(error));
    sendAnswer(udp, Buffer.from('x'), { address: '127.0.0.1', port: 0 });
    sendAnswer(udp, Buffer.from('x'), { address: '255.255.255.255', port: 53 });
    const toSelf = once(udp, 'message');
    sendAnswer(udp, Buffer.from('later'), udp.address());
    assert.equal(String((await toSelf)[0]), 'later');
    udp.close();
  });
});
