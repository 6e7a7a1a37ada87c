// Fuzzes the parser of machines' name queries. Each message must be refused, ignored, or become a query that a second
// parser (dns-packet) understands in the same way. Also fuzzes the answers of name servers and the splitting of TCP
// streams into messages.
import assert from 'node:assert/strict';
import dnsPacket from 'dns-packet';
import { FrameReader, framed } from '../../src/network/dns/frames.ts';
import {
  fitDatagram,
  MAX_QUERY_BYTES,
  type Query,
  readAnswer,
  readQuery,
  writeQuery,
} from '../../src/network/dns/message.ts';
import { Finding, type FuzzOptions } from './fuzzing.ts';
import { addressAnswer, EDNS, nameQuery } from './name-server.ts';

/** The longest query that may leave the relay: header, the longest name, type and class, and an OPT record. */
const MAX_WRITTEN_BYTES = 12 + 255 + 4 + 11;
/** How many messages are tried between two looks at the clock. */
const ROUND = 200;

export type FuzzResult = { cases: number; passed: number; refused: number; ignored: number };

/** Tries messages until `until` returns true. Throws `Finding`. */
export async function fuzzNames({ seed, until }: FuzzOptions): Promise<FuzzResult> {
  const random = randomFrom(seed);
  const result: FuzzResult = { cases: 0, passed: 0, refused: 0, ignored: 0 };
  const samples = [...Object.values(hostileMessages()), ...ordinaryMessages()];
  do {
    for (let count = 0; count < ROUND; count++) {
      const message = mutate(random.pick(samples), samples, random);
      try {
        result[tryMessage(message, random)]++;
        result.cases++;
      } catch (error) {
        throw new Finding(error instanceof Error ? error.message : String(error), {
          seed,
          caseNumber: result.cases,
          input: message,
        });
      }
    }
  } while (!until());
  return result;
}

/** Messages that must not pass the relay, each with a description as its key. */
export function hostileMessages(): Record<string, Buffer> {
  const opcode = (code: number) => nameQuery('zone.test', { flags: code << 11 });
  const type = (name: string, extra: object = {}) =>
    nameQuery('zone.test', { questions: [{ type: name as 'A', name: 'zone.test' }], ...extra });
  const record: dnsPacket.Answer[] = [{ type: 'A', name: 'zone.test', ttl: 1, data: '192.0.2.1' }];
  const good = nameQuery('zone.test');
  const pointer = Buffer.concat([good.subarray(0, 12), Buffer.from([0xc0, 0x0c, 0, 1, 0, 1])]);
  const withCount = (at: number, value: number) => {
    const message = Buffer.from(good);
    message.writeUInt16BE(value, at);
    return message;
  };
  return {
    transfer: type('AXFR'),
    'incremental transfer': type('IXFR', { authorities: record }),
    any: type('ANY'),
    'no type': type('UNKNOWN_0'),
    'key exchange': type('TKEY'),
    opt: type('OPT'),
    update: opcode(5),
    notify: opcode(4),
    status: opcode(2),
    'inverse query': opcode(1),
    answer: addressAnswer(good),
    chaos: nameQuery('version.bind', { questions: [{ type: 'TXT', name: 'version.bind', class: 'CH' }] }),
    'any class': nameQuery('zone.test', { questions: [{ type: 'A', name: 'zone.test', class: 'ANY' }] }),
    'no question': nameQuery('', { questions: [] }),
    'two questions': nameQuery('', {
      questions: [
        { type: 'A', name: 'one.test' },
        { type: 'A', name: 'two.test' },
      ],
    }),
    'with an answer': nameQuery('zone.test', { answers: record }),
    'with an authority': nameQuery('zone.test', { authorities: record }),
    'with a record': nameQuery('zone.test', { additionals: record }),
    'truncated flag': nameQuery('zone.test', { flags: 0x0200 }),
    'two opts': nameQuery('zone.test', { additionals: [EDNS, EDNS] }),
    'later edns': Buffer.concat([withCount(10, 1), Buffer.from([0, 0, 41, 4, 0, 0, 1, 0, 0, 0, 0])]),
    'bytes after it': Buffer.concat([good, Buffer.from('more')]),
    'bytes after opt': Buffer.concat([nameQuery('zone.test', { additionals: [EDNS] }), Buffer.of(0)]),
    'a missing record': withCount(10, 1),
    'a missing question': good.subarray(0, 12),
    'cut in its name': good.subarray(0, 15),
    'cut in its class': good.subarray(0, good.length - 1),
    'cut in its header': good.subarray(0, 11),
    'a name that points to itself': pointer,
    'a label of 64 bytes': Buffer.concat([
      good.subarray(0, 12),
      Buffer.of(64),
      Buffer.alloc(64, 97),
      Buffer.of(0, 0, 1, 0, 1),
    ]),
    'a name of 256 bytes': Buffer.concat([good.subarray(0, 12), labels(63, 63, 63, 62), Buffer.of(0, 0, 1, 0, 1)]),
    'too many bytes': Buffer.concat([good, Buffer.alloc(MAX_QUERY_BYTES)]),
    garbage: Buffer.from('garbage that is no message at all'),
    nothing: Buffer.alloc(0),
  };
}

/** Messages that may pass. */
function ordinaryMessages(): Buffer[] {
  const bare = nameQuery('').subarray(0, 12);
  const types = ['A', 'AAAA', 'MX', 'SRV', 'TXT', 'CAA', 'UNKNOWN_65', 'UNKNOWN_65535'];
  return [
    ...types.map((type) =>
      nameQuery('www.example.test', { questions: [{ type: type as 'A', name: 'www.example.test' }] }),
    ),
    nameQuery('.'),
    nameQuery('www.example.test', { additionals: [EDNS] }),
    Buffer.concat([bare, labels(63, 63, 63, 61), Buffer.of(0, 0, 1, 0, 1)]),
    Buffer.concat([bare, Buffer.from('\x05a.b\0c\x02\xff\xfe', 'latin1'), Buffer.of(0, 0, 1, 0, 1)]),
  ];
}

/** Encodes labels of the given lengths, without the zero byte that ends a name. */
function labels(...lengths: number[]): Buffer {
  return Buffer.concat(lengths.flatMap((length) => [Buffer.of(length), Buffer.alloc(length, 97)]));
}

function tryMessage(message: Buffer, random: Random): 'passed' | 'refused' | 'ignored' {
  tryFrames(message, random);
  const read = readQuery(message);
  if (read === undefined) return 'ignored';
  if ('refusal' in read) {
    tryRefusal(read.refusal, message);
    return 'refused';
  }
  tryQuery(read.query, message);
  tryAnswer(read.query, random);
  return 'passed';
}

/** Checks that a refusal is a response, and not longer than the message that it answers. */
function tryRefusal(refusal: Buffer, message: Buffer): void {
  assert.ok(refusal.length <= message.length);
  assert.deepEqual(refusal.subarray(0, 2), message.subarray(0, 2));
  const { type, answers, additionals } = dnsPacket.decode(refusal);
  assert.deepEqual([type, answers, additionals], ['response', [], []]);
  assert.equal(readQuery(refusal), undefined);
}

/**
 * Checks that the relay sends on one ordinary question, that dns-packet reads it too, and that it is the machine's
 * question.
 */
function tryQuery(query: Query, message: Buffer): void {
  const written = writeQuery(query, 0xbeef);
  assert.ok(written.length <= MAX_WRITTEN_BYTES);
  const seen = dnsPacket.decode(written);
  const [question] = seen.questions ?? [];
  assert.equal(seen.type, 'query');
  assert.equal((seen as { opcode?: string }).opcode, 'QUERY');
  assert.deepEqual([seen.questions?.length, seen.answers?.length, seen.authorities?.length], [1, 0, 0]);
  assert.equal(question?.class, 'IN');
  assert.ok(!['AXFR', 'IXFR', 'ANY', 'OPT', 'TSIG', 'TKEY'].includes(question?.type ?? ''));
  for (const { type } of seen.additionals ?? []) assert.equal(type, 'OPT');
  // Our parser does not look into EDNS options. Set the number of additional records to 0, so that dns-packet does not
  // either.
  const withoutEdns = Buffer.from(message);
  withoutEdns.writeUInt16BE(0, 10);
  assert.deepEqual(question, dnsPacket.decode(withoutEdns).questions?.[0]);
  const again = readQuery(written);
  assert.ok(again && 'query' in again);
  assert.deepEqual(again.query, { ...query, id: 0xbeef });
}

/**
 * Checks that the relay accepts only an answer to this question, and that the machine gets that answer with the id of
 * its own query and within its size limit.
 */
function tryAnswer(query: Query, random: Random): void {
  const id = random.below(0x10000);
  const right = Buffer.from(writeQuery(query, id));
  right.writeUInt16BE(right.readUInt16BE(2) | 0x8080, 2);
  assert.ok(readAnswer(right, query, id));
  const other = mutate(Buffer.concat([right, random.bytes(random.below(900))]), [right], random);
  const answer = readAnswer(other, query, id);
  if (!answer) return;
  assert.deepEqual([other.readUInt16BE(0), answer.readUInt16BE(0)], [id, query.id]);
  assert.equal(answer.length, other.length);
  assert.ok((answer[2] ?? 0) >= 0x80);
  assert.ok(fitDatagram(answer, query).length <= (query.edns?.answerBytes ?? 512));
}

/** Checks that the same messages come out of a TCP stream however it is cut into pieces. */
function tryFrames(message: Buffer, random: Random): void {
  const stream = Buffer.concat([framed(message), framed(Buffer.from('next')), framed(message)]);
  const frames = new FrameReader(Math.max(4, message.length));
  const found: Buffer[] = [];
  for (let at = 0; at < stream.length; ) {
    const end = at + 1 + random.below(stream.length);
    found.push(...frames.push(stream.subarray(at, end)));
    at = end;
  }
  assert.deepEqual(found.map(String), [message, 'next', message].map(String));
}

/** Changes a sample in one to four places: a bit, a byte, a cut, an insertion, or a piece of another sample. */
function mutate(sample: Buffer, samples: readonly Buffer[], random: Random): Buffer {
  let message = Buffer.from(sample);
  for (let changes = random.below(5); changes > 0; changes--) {
    const at = random.below(message.length + 1);
    const change = random.below(6);
    if (change === 0 && at < message.length) message.writeUInt8(message.readUInt8(at) ^ (1 << random.below(8)), at);
    else if (change === 1 && at < message.length)
      message.writeUInt8(random.pick([0, 1, 41, 63, 64, 192, 251, 252, 255]), at);
    else if (change === 2) message = message.subarray(0, at);
    else if (change === 3)
      message = Buffer.concat([message.subarray(0, at), random.bytes(random.below(70)), message.subarray(at)]);
    else if (change === 4)
      message = Buffer.concat([message.subarray(0, at), random.pick(samples).subarray(random.below(40))]);
    else if (message.length >= 12) message.writeUInt16BE(random.pick([0, 1, 2, 0xffff]), 4 + 2 * random.below(4));
  }
  return message;
}

type Random = {
  /** Returns an integer from 0 to `limit` - 1. */
  below(limit: number): number;
  pick<T>(values: readonly T[]): T;
  bytes(count: number): Buffer;
};

/** mulberry32: the same numbers for the same seed. */
function randomFrom(seed: number): Random {
  let state = seed >>> 0;
  const below = (limit: number) => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) % limit;
  };
  return {
    below,
    pick: (values) => values[below(values.length)] as (typeof values)[number],
    bytes: (count) => Buffer.from(Array.from({ length: count }, () => below(256))),
  };
}
