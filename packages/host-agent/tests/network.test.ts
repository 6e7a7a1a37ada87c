// Tests the choice of addresses, and how a datagram is sent.
import assert from 'node:assert/strict';
import { createSocket } from 'node:dgram';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { sendAnswer } from '../src/network/dns/relay.ts';
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
