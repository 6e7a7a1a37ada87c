// Tests how the name relay parses DNS messages, without sockets.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { describe, it } from 'node:test';
import { readQuery, writeQuery } from '../src/network/dns/message.ts';
import { readNameServers } from '../src/network/dns/name-servers.ts';
import { Rate } from '../src/network/dns/rate.ts';
import { Shares } from '../src/network/dns/shares.ts';
import { fuzzNames, hostileMessages } from './support/fuzz-names.ts';
import { forSeconds } from './support/fuzzing.ts';
import { EDNS, nameQuery } from './support/name-server.ts';

const FUZZ_SECONDS = 30;

describe('name messages', () => {
  it('what is no ordinary question becomes no query (RES-3)', () => {
    for (const [what, message] of Object.entries(hostileMessages())) {
      const read = readQuery(message);
      assert.ok(read === undefined || 'refusal' in read, what);
    }
  });

  it('a question passes with its flags, its exact name and nothing else (RES-3)', () => {
    const padded = { ...EDNS, flags: 0x8000, options: [{ code: 12 as const, length: 8 }] };
    const message = nameQuery('wWw.Example.test', { flags: 0x0530, additionals: [padded] });
    const read = readQuery(message);
    assert.ok(read && 'query' in read);
    const written = writeQuery(read.query, 9);
    assert.deepEqual(
      written,
      nameQuery('wWw.Example.test', {
        id: 9,
        flags: 0x0130,
        additionals: [{ ...EDNS, udpPayloadSize: 1232, flags: 0x8000 }],
      }),
    );
  });

  it('fuzzed messages are read as another reader reads them (RES-3)', async () => {
    const seed = randomInt(1e9);
    const { passed, refused, ignored } = await fuzzNames({ seed, until: forSeconds(FUZZ_SECONDS) });
    for (const count of [passed, refused, ignored]) assert.ok(count > 100, `seed ${seed}`);
  });

  it('name servers come from resolv.conf', () => {
    assert.deepEqual(readNameServers('# x\nnameserver 1.2.3.4\n nameserver ::1\nsearch a\n'), ['1.2.3.4', '::1']);
    assert.deepEqual(readNameServers('nameserver nonsense\n'), ['127.0.0.1']);
  });

  it('a machine may ask at a rate, after a burst, whatever others ask (RES-3)', () => {
    let now = 0;
    const rate = new Rate(10, 3, () => now);
    const take = (owner: string, times: number) => Array.from({ length: times }, () => rate.take(owner));
    assert.deepEqual(take('a', 5), [true, true, true, false, false]);
    assert.deepEqual(take('b', 1), [true]);
    now += 100;
    assert.deepEqual(take('a', 2), [true, false]);
    now += 10_000;
    assert.deepEqual(take('a', 4), [true, true, true, false]);
    assert.equal(rate.size, 1, 'an owner that was silent is forgotten');
  });

  it('places are divided fairly once all are taken (RES-3)', () => {
    const shares = new Shares(6, 4);
    const evicted: string[] = [];
    const take = (owner: string, times = 1) =>
      Array.from({ length: times }, (_, at) => shares.take(owner, () => evicted.push(`${owner}${at}`)));
    const a = take('a', 5);
    assert.deepEqual(
      a.map((place) => place !== undefined),
      [true, true, true, true, false],
    );
    take('b', 2);
    assert.deepEqual(
      take('c').map((place) => place !== undefined),
      [true],
    );
    assert.deepEqual(evicted, ['a0'], 'the oldest of the one who holds the most makes room');
    assert.deepEqual(take('b'), [undefined], 'b holds one less than a, so it takes nothing from a');
    a[0]?.giveBack();
    assert.deepEqual(take('b'), [undefined], 'a place is not given back twice');
    a[1]?.giveBack();
    assert.notDeepEqual(take('b'), [undefined]);
  });
});
