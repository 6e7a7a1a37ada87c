// Which addresses of a subnet machines may have, and the order in which they are given out.
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, it } from 'node:test';
import { AddressCounter } from '../src/network/address-counter.ts';
import { addressAt, countAddresses, isMachineAddress, nextFreeCounter } from '../src/network/addresses.ts';

describe('the addresses of a subnet', () => {
  it('are all but the network, the gateway, .2, .3 and the broadcast', () => {
    assert.equal(countAddresses('10.83.0.0/24'), 251);
    assert.equal(countAddresses('10.200.0.0/16'), 65_531);
    for (const address of [
      '10.83.0.0',
      '10.83.0.1',
      '10.83.0.2',
      '10.83.0.3',
      '10.83.0.255',
      '10.83.1.4',
      '10.82.255.9',
    ])
      assert.equal(isMachineAddress('10.83.0.0/24', address), false, address);
    for (const address of ['10.83.0.4', '10.83.0.254']) assert.ok(isMachineAddress('10.83.0.0/24', address), address);
  });

  it('are each counted once, across the borders of octets', () => {
    const all = Array.from({ length: countAddresses('10.200.0.0/16') }, (_, counter) =>
      addressAt('10.200.0.0/16', counter),
    );
    assert.equal(new Set(all).size, all.length);
    assert.ok(all.every((address) => isMachineAddress('10.200.0.0/16', address)));
    assert.deepEqual([all[0], all[252], all.at(-1)], ['10.200.0.4', '10.200.1.0', '10.200.255.254']);
    assert.equal(addressAt('10.200.0.0/16', all.length), all[0]);
  });

  it('are looked through from the counter on, once around', () => {
    const subnet = '10.83.0.0/24';
    const all = Array.from({ length: 251 }, (_, counter) => addressAt(subnet, counter));
    assert.equal(nextFreeCounter(subnet, 7, new Set()), 7);
    assert.equal(nextFreeCounter(subnet, 7, new Set(all.slice(7, 20))), 20);
    assert.equal(nextFreeCounter(subnet, 250, new Set(all.slice(250))), 251);
    assert.equal(nextFreeCounter(subnet, 7, new Set(all)), undefined);
  });
});

describe('the address counter', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-addresses-'));
  after(() => rmSync(dir, { recursive: true, force: true }));
  const SUBNET = '10.83.0.0/24';
  const none = new Set<string>();

  it('gives a freed address out again only after all others', () => {
    const counter = new AddressCounter(SUBNET, join(dir, 'round.json'));
    const first = counter.choose(none);
    const others = Array.from({ length: 250 }, () => counter.choose(none));
    assert.equal(new Set([first, ...others]).size, 251);
    assert.equal(counter.choose(none), first);
  });

  it('goes on after those of an earlier agent, however that ended', () => {
    const path = join(dir, 'restart.json');
    const used = new Set<string>();
    for (let restart = 0; restart < 3; restart++) {
      const counter = new AddressCounter(SUBNET, path);
      for (let index = 0; index < 40; index++) {
        const address = counter.choose(none);
        assert.ok(!used.has(address), `${address} came again after restart ${restart}`);
        used.add(address);
      }
    }
  });

  it('is not written for every address', () => {
    const path = join(dir, 'rare.json');
    const counter = new AddressCounter(SUBNET, path);
    counter.choose(none);
    const before = readFileSync(path, 'utf8');
    counter.choose(none);
    assert.equal(readFileSync(path, 'utf8'), before);
  });

  it('begins again where a power cut left its file empty or strange', () => {
    for (const content of ['', '{', '{"next":-1}', '{"next":"x"}', '[]']) {
      writeFileSync(join(dir, 'cut.json'), content);
      assert.equal(new AddressCounter(SUBNET, join(dir, 'cut.json')).choose(none), '10.83.0.4', content);
    }
  });

  it('says that a full subnet is a limit of the subnet', () => {
    const all = new Set(Array.from({ length: 251 }, (_, index) => addressAt(SUBNET, index)));
    const counter = new AddressCounter(SUBNET, join(dir, 'full.json'));
    assert.throws(() => counter.choose(all), {
      code: 'fleet_capacity',
      message: /subnet 10\.83\.0\.0\/24 .*251 machines/,
    });
    all.delete('10.83.0.99');
    assert.equal(counter.choose(all), '10.83.0.99');
  });
});
