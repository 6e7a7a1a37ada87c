// Tests the choice of addresses, and how a datagram is sent.
import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { readConfig } from '../src/config.ts';
import { sendAnswer } from '../src/network/dns/relay.ts';
import { hostRoutes } from '../src/network/host-routes.ts';
import { chooseSubnet, macOfIp, networkOf, overlaps, parseRanges, parseSubnet } from '../src/network/subnet.ts';

describe('network', () => {
  it('the chosen subnet avoids those in use and is always the same for a data directory', () => {
    const first = chooseSubnet('/var/lib/sandbar', []);
    assert.equal(chooseSubnet('/var/lib/sandbar', []), first);
    const inside = first.replace('0.0/16', '7.0/24');
    assert.notEqual(chooseSubnet('/var/lib/sandbar', [inside]), first);
    assert.throws(() => chooseSubnet('/var/lib/sandbar', ['10.0.0.0/8', '172.16.0.0/12']), /set SANDBAR_SUBNET/);
  });

  it('the chosen subnet is not part of a larger network that the host uses, such as that of a VPN', () => {
    for (const home of ['/var/lib/sandbar', '/srv/a', '/srv/b']) {
      assert.match(chooseSubnet(home, ['10.0.0.0/8']), /^172\.(1[6-9]|2\d|3[01])\.0\.0\/16$/);
      assert.match(chooseSubnet(home, ['10.0.0.0/8', '172.16.0.0/13']), /^172\.(2[4-9]|3[01])\.0\.0\/16$/);
      assert.match(chooseSubnet(home, ['10.128.0.0/10']), /^10\.(19[2-9]|2\d\d)\.0\.0\/16$/);
    }
  });

  it('networks overlap when one contains the other', () => {
    for (const [one, other, expected] of [
      ['10.0.0.0/8', '10.255.0.0/16', true],
      ['10.255.0.0/16', '10.0.0.0/8', true],
      ['10.1.0.0/16', '10.1.0.0/16', true],
      ['10.1.0.0/16', '10.10.0.0/16', false],
      ['100.64.0.0/10', '100.127.255.255/32', true],
      ['100.64.0.0/10', '100.128.0.0/16', false],
      ['192.168.0.0/25', '192.168.0.128/25', false],
    ] as const)
      assert.equal(overlaps(one, other), expected, `${one} and ${other}`);
    assert.equal(networkOf('10.1.2.3/16'), '10.1.0.0/16');
    assert.equal(networkOf('203.0.113.200/26'), '203.0.113.192/26');
  });

  it('the networks of the host come from the routes of all its tables and from its interfaces (RES-4)', () => {
    const leaf = (address: string, ...routes: string[]) =>
      `     |-- ${address}\n${routes.map((route) => `        ${route}\n`).join('')}`;
    const trie = [
      'Main:\n  +-- 0.0.0.0/0 3 0 5\n',
      leaf('0.0.0.0', '/0 universe UNICAST', '/1 universe UNICAST'),
      leaf('203.0.113.0', '/24 link UNICAST', '/25 universe UNICAST'),
      leaf('203.0.113.5', '/32 host LOCAL'),
      'Id 52:\n',
      leaf('10.0.0.0', '/8 universe UNICAST'),
      leaf('198.51.100.7', '/32 link UNICAST tos=16'),
      leaf('192.168.0.0', '/16 universe BLACKHOLE'),
    ];
    assert.deepEqual(hostRoutes(trie.join(''), ['198.18.5.0/24']), {
      used: [
        '10.0.0.0/8',
        '192.168.0.0/16',
        '198.18.5.0/24',
        '198.51.100.7/32',
        '203.0.113.0/24',
        '203.0.113.0/25',
        '203.0.113.5/32',
      ],
      attached: ['198.18.5.0/24', '198.51.100.7/32', '203.0.113.0/24'],
    });
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

  it('allowed ranges must be IPv4 ranges', () => {
    assert.deepEqual(parseRanges(''), []);
    assert.deepEqual(parseRanges('10.1.0.0/16, 192.168.7.9'), ['10.1.0.0/16', '192.168.7.9/32']);
    for (const bad of ['10.1.0.0/33', '10.1.0.1/16', 'fd00::/8', 'intranet', '10.1.0.0/16/8', '10.1/16', '10.1.0.0/']) {
      assert.throws(() => parseRanges(bad), /SANDBAR_NETWORK_ALLOW/, bad);
    }
  });

  it('the name servers of the configuration must be IP addresses', () => {
    const read = (text: string) => readConfig({ SANDBAR_NAME_SERVERS: text }, 0).nameServers;
    assert.deepEqual(read('192.0.2.1, 2001:db8::1'), ['192.0.2.1', '2001:db8::1']);
    assert.equal(read(''), undefined);
    for (const bad of ['dns.test', '192.0.2.1,', '192.0.2.1:53'])
      assert.throws(() => read(bad), /SANDBAR_NAME_SERVERS/);
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
