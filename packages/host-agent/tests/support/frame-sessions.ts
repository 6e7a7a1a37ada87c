// Sessions in frames with a guest whose behaviour the test scripts.
import { EventEmitter, once } from 'node:events';
import { rmSync } from 'node:fs';
import { connect, createServer, type Socket } from 'node:net';
import { FrameTransport } from '../../src/guest/frame-transport.ts';
import type { JobFrame } from '../../src/guest/guest.ts';
import { GuestClient } from '../../src/guest/guest-client.ts';
import type { WorkBudget } from '../../src/guest/work-budget.ts';
import { type GuestCall, serveFrames } from './frame-guest.ts';

export const JOB = {
  id: 'j',
  status: 'exited',
  exit_code: 0,
  signal: null,
  stdout_bytes: 0,
  stderr_bytes: 0,
  truncated: false,
};
export const SPEC = { command: 'true', timeout_sec: 1 };
/** Turns of the event loop that suffice for what was sent, because the host handles one socket event after another. */
const TURNS = 50;

/** Waits until the host has handled what was sent to it. */
export async function turns(count = TURNS): Promise<void> {
  for (let turn = 0; turn < count; turn++) await new Promise((resolve) => setImmediate(resolve));
}

export class FrameSessions {
  readonly #path = `/tmp/sandbar-frames-${process.pid}.sock`;
  readonly #server = createServer();
  readonly #clients: GuestClient[] = [];

  listen(): Promise<void> {
    return new Promise<void>((resolve) => this.#server.listen(this.#path, resolve));
  }

  /** Closes all sessions. */
  close(): void {
    for (const client of this.#clients) client.close();
    this.#server.close();
    rmSync(this.#path, { force: true });
  }

  /** Opens a session. Each request is passed to `respond`. `call` waits for the request with this number, from 0 on. */
  async open(respond: (call: GuestCall) => void, options: { timeoutMs?: number; budget?: WorkBudget } = {}) {
    const accepted = once(this.#server, 'connection');
    const host = connect(this.#path);
    const [guest] = (await accepted) as [Socket];
    guest.on('error', () => {});
    const calls: GuestCall[] = [];
    const arrivals = new EventEmitter();
    serveFrames(guest, (call) => {
      calls.push(call);
      respond(call);
      arrivals.emit('call');
    });
    const client = new GuestClient(new FrameTransport(host, options.budget), options.timeoutMs);
    this.#clients.push(client);
    const call = async (number: number): Promise<GuestCall> => {
      while (!calls[number]) await once(arrivals, 'call');
      return calls[number] as GuestCall;
    };
    return { client, host, guest, calls, call };
  }
}

/** Reads the output of a job to its end. */
export async function readAll(frames: AsyncIterable<JobFrame>): Promise<{ out: string; err: string; ended: boolean }> {
  const seen = { out: '', err: '', ended: false };
  for await (const frame of frames) {
    if (frame.type === 'end') seen.ended = true;
    else seen[frame.stream === 'stdout' ? 'out' : 'err'] += frame.bytes.toString();
  }
  return seen;
}
