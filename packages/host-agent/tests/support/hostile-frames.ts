// A hostile guest agent that speaks frames and breaks their rules. It is a process of its own, so that the host's
// memory use can be measured separately. Its argument is a socket path. A client first sends a line with the name of an
// attack.
import { createServer, type Socket } from 'node:net';
import { KIND } from '../../src/guest/frame-codec.ts';
import { answerOf, beginOf, frameOf, outputOf } from './frame-guest.ts';

/** Returns what is sent instead of the answer to a call: `first` once, then `forever` endlessly. */
type Attack = (call: number) => { first?: Buffer; forever?: () => Buffer };

const PIECE = 65_536;
const again = (bytes: Buffer) => () => bytes;

export const ATTACKS: Record<string, Attack> = {
  silence: () => ({}),
  'half a header': (call) => ({ first: beginOf(call).subarray(0, 6) }),
  'half an answer': (call) => ({ first: frameOf(KIND.answer, call, Buffer.alloc(1000), 2 ** 20) }),
  'an answer byte by byte': (call) => ({
    first: frameOf(KIND.answer, call, '', 2 ** 20),
    forever: again(Buffer.from(' ')),
  }),
  'a claim of 4 GiB': (call) => ({
    first: frameOf(KIND.answer, call, '', 2 ** 32 - 1),
    forever: again(Buffer.alloc(PIECE)),
  }),
  garbage: () => ({ forever: again(Buffer.from('HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n'.repeat(400))) }),
  'the frames of HTTP/2': () => ({ forever: again(Buffer.from('000000040000000000'.repeat(500), 'hex')) }),
  'answers to calls that were never made': () => ({
    forever: again(Buffer.concat(Array(500).fill(answerOf(99, 200)))),
  }),
  'beginnings without end': (call) => ({ forever: again(Buffer.concat(Array(500).fill(beginOf(call)))) }),
  'output without credit': (call) => {
    let offset = 0;
    const next = () => {
      offset += PIECE;
      return outputOf(call, offset - PIECE, Buffer.alloc(PIECE));
    };
    return { first: beginOf(call), forever: next };
  },
  'the same output twice': (call) => ({ first: beginOf(call), forever: again(outputOf(call, 0, Buffer.alloc(4000))) }),
  'output without a byte': (call) => ({ first: beginOf(call), forever: again(outputOf(call, 0, '')) }),
};

/** Serves one client: waits for the attack's name, then for the first request, which has the id 1. */
function serve(socket: Socket): void {
  let seen: Buffer = Buffer.alloc(0);
  const read = (chunk: Buffer) => {
    seen = Buffer.concat([seen, chunk]);
    const end = seen.indexOf('\n');
    if (end < 0 || seen.length < end + 10) return;
    socket.off('data', read).resume();
    const attack = ATTACKS[seen.subarray(0, end).toString()];
    if (!attack) throw new Error('there is no such attack');
    void play(socket, attack(1));
  };
  socket.on('data', read).on('error', () => socket.destroy());
}

async function play(socket: Socket, { first, forever }: ReturnType<Attack>): Promise<void> {
  if (first) socket.write(first);
  while (forever && !socket.destroyed) await new Promise((written) => socket.write(forever(), written));
}

if (import.meta.main && process.argv[2] !== undefined) {
  createServer(serve).listen(process.argv[2], () => {
    process.send?.('listening');
  });
  process.on('disconnect', () => process.exit());
}
