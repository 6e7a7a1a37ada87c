// A hostile guest agent that violates the rules of HTTP/2. It is a process of its own, so that the host's memory use
// can be measured separately. Its argument is a socket path. A client first sends a line with the name of an attack,
// then speaks HTTP/2.
import { createServer, type Socket } from 'node:net';

const TYPE = {
  data: 0x0,
  headers: 0x1,
  priority: 0x2,
  reset: 0x3,
  settings: 0x4,
  push: 0x5,
  ping: 0x6,
  goaway: 0x7,
  window: 0x8,
  continuation: 0x9,
  altsvc: 0xa,
  origin: 0xc,
  unknown: 0xee,
} as const;
const END_STREAM = 0x1;
const ACK = 0x1;
const END_HEADERS = 0x4;
const PADDED = 0x8;
const PIECE = 16_384;

function frame(type: number, flags: number, stream: number, payload: Buffer = Buffer.alloc(0)): Buffer {
  const header = Buffer.alloc(9);
  header.writeUIntBE(payload.length, 0, 3);
  header.writeUInt8(type, 3);
  header.writeUInt8(flags, 4);
  header.writeUInt32BE(stream, 5);
  return Buffer.concat([header, payload]);
}

function uint32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32BE(value);
  return bytes;
}

/** Encodes a header field without indexing (RFC 7541). Name and value must be shorter than 127 bytes. */
function field(name: string, value: string): Buffer {
  return Buffer.concat([
    Buffer.from([0, name.length]),
    Buffer.from(name),
    Buffer.from([value.length]),
    Buffer.from(value),
  ]);
}

const STATUS_200 = Buffer.from([0x88]);
const STATUS_103 = Buffer.concat([Buffer.from([0x08, 3]), Buffer.from('103')]);
const settings = frame(TYPE.settings, 0, 0);
const ok = (stream: number) => frame(TYPE.headers, END_HEADERS, stream, STATUS_200);
const fields = (count: number, length: number) =>
  Buffer.concat(Array.from({ length: count }, (_, i) => field(`x-${i}`, 'v'.repeat(length))));

/** The header of a frame of a job's stdout. */
function outputHeader(length: number, offset: number): Buffer {
  const header = Buffer.alloc(16);
  header.writeUInt8(1, 0);
  header.writeUInt32BE(length, 4);
  header.writeBigUInt64BE(BigInt(offset), 8);
  return header;
}

/**
 * Returns the frames of an attack on the request of `stream`: `first` is sent once, then `forever` is repeated
 * endlessly.
 */
type Attack = (stream: number) => { first?: Buffer; forever?: Buffer | (() => Buffer) };

export const ATTACKS: Record<string, Attack> = {
  silence: () => ({}),
  'an answer without end': (s) => ({ first: ok(s) }),
  'half a frame': (s) => ({
    first: Buffer.concat([ok(s), frame(TYPE.data, 0, s, Buffer.alloc(PIECE)).subarray(0, 100)]),
  }),
  garbage: () => ({ forever: Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'.repeat(400)) }),
  'headers that never end': (s) => ({
    first: frame(TYPE.headers, 0, s, STATUS_200),
    forever: frame(TYPE.continuation, 0, s, fields(100, 100)),
  }),
  'empty continuations': (s) => ({
    first: frame(TYPE.headers, 0, s, STATUS_200),
    forever: Buffer.concat(Array(500).fill(frame(TYPE.continuation, 0, s))),
  }),
  'ten thousand header fields': (s) => ({
    first: Buffer.concat([
      frame(TYPE.headers, 0, s, STATUS_200),
      ...Array(6).fill(frame(TYPE.continuation, 0, s, fields(1300, 5))),
      frame(TYPE.continuation, END_HEADERS, s, fields(1300, 5)),
    ]),
  }),
  'large header fields': (s) => ({
    first: frame(TYPE.headers, END_HEADERS, s, Buffer.concat([STATUS_200, fields(30, 120)])),
    forever: frame(TYPE.headers, END_HEADERS, s, fields(30, 120)),
  }),
  'a flood of informational answers': (s) => ({
    forever: Buffer.concat(Array(200).fill(frame(TYPE.headers, END_HEADERS, s, STATUS_103))),
  }),
  'trailers without end': (s) => ({
    first: ok(s),
    forever: frame(TYPE.headers, END_HEADERS, s, fields(5, 50)),
  }),
  'a flood of settings': () => ({ forever: Buffer.concat(Array(500).fill(settings)) }),
  'settings of 2,700 entries': () => ({
    forever: frame(TYPE.settings, 0, 0, Buffer.concat(Array(2700).fill(Buffer.from('000300000064', 'hex')))),
  }),
  'acknowledgements of settings never sent': () => ({
    forever: Buffer.concat(Array(500).fill(frame(TYPE.settings, ACK, 0))),
  }),
  'a flood of pings': () => ({ forever: Buffer.concat(Array(300).fill(frame(TYPE.ping, 0, 0, Buffer.alloc(8)))) }),
  'a flood of pongs': () => ({ forever: Buffer.concat(Array(300).fill(frame(TYPE.ping, ACK, 0, Buffer.alloc(8)))) }),
  'a flood of resets': (s) => ({
    first: frame(TYPE.reset, 0, s, uint32(8)),
    forever: Buffer.concat(Array(300).fill(frame(TYPE.reset, 0, s, uint32(8)))),
  }),
  'resets of streams that never were': () => ({ forever: frame(TYPE.reset, 0, 99, uint32(8)) }),
  'a flood of window updates': () => ({ forever: Buffer.concat(Array(300).fill(frame(TYPE.window, 0, 0, uint32(1)))) }),
  'a window beyond all bounds': () => ({ forever: frame(TYPE.window, 0, 0, uint32(0x7fffffff)) }),
  'no window at all': () => ({ first: frame(TYPE.settings, 0, 0, Buffer.from('000400000000', 'hex')) }),
  'a window of 2 GB': () => ({
    first: Buffer.concat([
      frame(TYPE.settings, 0, 0, Buffer.from('00047fffffff', 'hex')),
      frame(TYPE.window, 0, 0, uint32(0x7fff0000)),
    ]),
  }),
  'a flood of priorities': (s) => ({
    forever: Buffer.concat(Array(300).fill(frame(TYPE.priority, 0, s, Buffer.from('0000000010', 'hex')))),
  }),
  'frames of an unknown type': () => ({ forever: frame(TYPE.unknown, 0, 0, Buffer.alloc(PIECE)) }),
  'alternative services': () => ({
    forever: frame(
      TYPE.altsvc,
      0,
      0,
      Buffer.concat([Buffer.from('0004', 'hex'), Buffer.from('h://h2=":1"'.repeat(900))]),
    ),
  }),
  origins: () => ({
    forever: frame(TYPE.origin, 0, 0, Buffer.concat(Array(500).fill(Buffer.from('000968747470733a2f2f61', 'hex')))),
  }),
  'empty data frames': (s) => ({ first: ok(s), forever: Buffer.concat(Array(500).fill(frame(TYPE.data, 0, s))) }),
  'nothing but padding': (s) => ({
    first: ok(s),
    forever: frame(TYPE.data, PADDED, s, Buffer.concat([Buffer.from([255]), Buffer.alloc(255)])),
  }),
  'data beyond the window': (s) => ({ first: ok(s), forever: frame(TYPE.data, 0, s, Buffer.alloc(PIECE)) }),
  'the same output twice': (s) => {
    const output = Buffer.concat([outputHeader(PIECE - 16, 0), Buffer.alloc(PIECE - 16)]);
    return { first: Buffer.concat([ok(s), ...Array(2).fill(frame(TYPE.data, 0, s, output))]) };
  },
  'output frames without a byte': (s) => {
    const empty = Buffer.concat(Array(1000).fill(outputHeader(0, 0)));
    return { first: Buffer.concat([ok(s), frame(TYPE.data, 0, s, empty)]) };
  },
  'data frames of one byte': (s) => ({
    first: Buffer.concat([ok(s), frame(TYPE.data, 0, s, outputHeader(1024 * 1024, 0))]),
    forever: Buffer.concat(Array(500).fill(frame(TYPE.data, 0, s, Buffer.of(120)))),
  }),
  'output without end': (s) => {
    let offset = 0;
    const length = PIECE - 16;
    const next = () => Buffer.concat([outputHeader(length, length * offset++), Buffer.alloc(length)]);
    return { first: ok(s), forever: () => frame(TYPE.data, 0, s, next()) };
  },
  'data for streams that never were': () => ({ forever: frame(TYPE.data, 0, 98, Buffer.alloc(PIECE)) }),
  'pushed answers': (s) => ({
    first: Buffer.concat(
      Array.from({ length: 2000 }, (_, i) =>
        frame(
          TYPE.push,
          END_HEADERS,
          s,
          Buffer.concat([uint32(2 + 2 * i), Buffer.from('828486', 'hex'), field(':authority', 'a')]),
        ),
      ),
    ),
  }),
  'goodbye without end': () => ({
    forever: frame(TYPE.goaway, 0, 0, Buffer.concat([uint32(0x7fffffff), uint32(0), Buffer.alloc(PIECE - 8)])),
  }),
  'an answer that ends before its body': (s) => ({
    first: Buffer.concat([
      frame(TYPE.headers, END_HEADERS, s, Buffer.concat([STATUS_200, field('content-length', '1000')])),
      frame(TYPE.data, END_STREAM, s, Buffer.from('{}')),
    ]),
  }),
};

/** Serves one client. In the `deaf` attacks it stops reading, so that replies to its frames pile up in the host. */
function serve(socket: Socket): void {
  let seen: Buffer = Buffer.alloc(0);
  let attack: Attack | undefined;
  let deaf = false;
  let next = 0;
  const read = (chunk: Buffer) => {
    seen = Buffer.concat([seen, chunk]);
    if (!attack) {
      const end = seen.indexOf('\n');
      if (end < 0) return;
      const [name = '', mode] = seen.subarray(0, end).toString().split('|');
      attack = ATTACKS[name];
      if (!attack) throw new Error(`no attack is called ${name}`);
      deaf = mode === 'deaf';
      seen = seen.subarray(end + 1);
      socket.write(settings);
      next = 24; // the client's preface
    }
    while (seen.length >= next + 9) {
      if (seen[next + 3] === TYPE.headers) {
        socket.off('data', read);
        if (deaf) socket.pause();
        else socket.resume();
        socket.write(frame(TYPE.settings, ACK, 0));
        void play(socket, attack(seen.readUInt32BE(next + 5)));
        return;
      }
      next += 9 + seen.readUIntBE(next, 3);
    }
  };
  socket.on('data', read).on('error', () => socket.destroy());
}

async function play(socket: Socket, { first, forever }: ReturnType<Attack>): Promise<void> {
  if (first) socket.write(first);
  if (!forever) return;
  const next = typeof forever === 'function' ? forever : () => forever;
  while (!socket.destroyed) await new Promise((written) => socket.write(next(), written));
}

if (import.meta.main && process.argv[2] !== undefined) {
  createServer(serve).listen(process.argv[2], () => {
    process.send?.('listening');
  });
  process.on('disconnect', () => process.exit());
}
