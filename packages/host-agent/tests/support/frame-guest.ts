// The guest's side of the protocol in frames (src/guest/frame-codec.ts), for tests: reads the host's frames, keeps to
// the credit, and can send any bytes.
import { EventEmitter, once } from 'node:events';
import type { Socket } from 'node:net';
import { KIND } from '../../src/guest/frame-codec.ts';

const HEADER_BYTES = 9;
const INITIAL_CREDIT = 256 * 1024;
const MAX_OUTPUT_BYTES = 64 * 1024;

/** Builds a frame. `length` may claim another length than the payload has. */
export function frameOf(kind: number, id: number, payload: Buffer | string = '', length?: number): Buffer {
  const bytes = Buffer.from(payload);
  const header = Buffer.alloc(HEADER_BYTES);
  header.writeUInt32BE(length ?? bytes.length, 0);
  header.writeUInt8(kind, 4);
  header.writeUInt32BE(id, 5);
  return Buffer.concat([header, bytes]);
}

export function answerOf(id: number, status: number, body = ''): Buffer {
  return frameOf(KIND.answer, id, Buffer.concat([uint16(status), Buffer.from(body)]));
}

/** `head`: that of a two-way stream. */
export function beginOf(id: number, status = 201, head = ''): Buffer {
  return frameOf(KIND.begin, id, Buffer.concat([uint16(status), Buffer.from(head)]));
}

export function outputOf(id: number, offset: number | bigint, bytes: Buffer | string, kind: number = KIND.stdout) {
  const head = Buffer.alloc(8);
  head.writeBigUInt64BE(BigInt(offset));
  return frameOf(kind, id, Buffer.concat([head, Buffer.from(bytes)]));
}

export function endOf(id: number, job: unknown): Buffer {
  return frameOf(KIND.end, id, JSON.stringify(job));
}

function uint16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(value);
  return bytes;
}

/** One request of the host. */
export class GuestCall {
  readonly id: number;
  readonly method: string;
  readonly path: string;
  readonly body: string;
  readonly changes = new EventEmitter().setMaxListeners(0);
  credit = INITIAL_CREDIT;
  /** The sizes of all `credit` frames for this call. */
  readonly grants: number[] = [];
  isCancelled = false;
  /** Called with the input of a two-way stream, and with null at its end. */
  onInput: (bytes: Buffer | null) => void = () => {};
  readonly #socket: Socket;

  constructor(socket: Socket, id: number, payload: Buffer) {
    this.#socket = socket;
    this.id = id;
    const end = 2 + payload.readUInt16BE(0);
    const head = payload.toString('latin1', 2, end);
    this.method = head.slice(0, head.indexOf(' '));
    this.path = head.slice(head.indexOf(' ') + 1);
    this.body = payload.toString('utf8', end);
  }

  get isOver(): boolean {
    return this.isCancelled || this.#socket.destroyed;
  }

  send(...frames: Buffer[]): void {
    this.#socket.write(Buffer.concat(frames));
  }

  /** Allows the host to send more input. */
  allow(bytes: number): void {
    const credit = Buffer.alloc(4);
    credit.writeUInt32BE(bytes);
    this.send(frameOf(KIND.inputCredit, this.id, credit));
  }

  answer(status: number, body = ''): void {
    this.send(answerOf(this.id, status, body));
  }

  /** Sends output within the credit. Resolves when all is sent, or when the call is over. */
  async output(offset: number, bytes: Buffer): Promise<void> {
    for (let done = 0; done < bytes.length && !this.isOver; ) {
      const most = Math.min(MAX_OUTPUT_BYTES, this.credit - 8, bytes.length - done);
      if (most <= 0) {
        await once(this.changes, 'change');
        continue;
      }
      this.credit -= 8 + most;
      this.send(outputOf(this.id, offset + done, bytes.subarray(done, done + most)));
      done += most;
    }
  }
}

/** Reads the frames of the host. Calls `onRequest` with each request. */
export function serveFrames(socket: Socket, onRequest: (call: GuestCall) => void): void {
  const calls = new Map<number, GuestCall>();
  let seen: Buffer = Buffer.alloc(0);
  socket.on('data', (chunk: Buffer) => {
    seen = Buffer.concat([seen, chunk]);
    while (seen.length >= HEADER_BYTES && seen.length >= HEADER_BYTES + seen.readUInt32BE(0)) {
      const size = HEADER_BYTES + seen.readUInt32BE(0);
      const [kind, id, payload] = [seen.readUInt8(4), seen.readUInt32BE(5), seen.subarray(HEADER_BYTES, size)];
      seen = seen.subarray(size);
      const call = calls.get(id);
      if (kind === KIND.request) {
        const made = new GuestCall(socket, id, payload);
        calls.set(id, made);
        onRequest(made);
      } else if (kind === KIND.credit && call) {
        call.grants.push(payload.readUInt32BE(0));
        call.credit += payload.readUInt32BE(0);
        call.changes.emit('change');
      } else if (kind === KIND.cancel && call) {
        call.isCancelled = true;
        call.changes.emit('change');
      } else if (kind === KIND.input) call?.onInput(payload);
      else if (kind === KIND.inputEnd) call?.onInput(null);
    }
  });
  socket.on('close', () => {
    for (const call of calls.values()) call.changes.emit('change');
  });
}
