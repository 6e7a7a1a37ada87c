// The calls that a fake host receives, and the faults that a test plans for them.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { FastifyReply } from 'fastify';

export type Operation =
  | 'info'
  | 'list'
  | 'get'
  | 'ensure'
  | 'delete'
  | 'startJob'
  | 'listJobs'
  | 'keptOutput'
  | 'getJob'
  | 'cancel'
  | 'output'
  | 'listVolumes'
  | 'ensureVolume'
  | 'deleteVolume'
  | 'sendCopy'
  | 'receiveCopy'
  | 'listSnapshots'
  | 'takeSnapshot'
  | 'deleteSnapshot'
  | 'callGuest'
  | 'openStream'
  | 'audit'
  | 'fixAudit';
/**
 * What goes wrong with a call. `fail`: the host does nothing and answers with an error. `drop`: it does nothing and
 * closes the connection. `hang`: it does nothing and does not answer until released. With `After`, the host does the
 * work first. `hangThenFail`: it answers with an error once released. `answerLate`: it does the work and prepares the
 * answer now, and sends the answer once released.
 */
export type Fault =
  | 'fail'
  | 'failAfter'
  | 'drop'
  | 'dropAfter'
  | 'hang'
  | 'hangAfter'
  | 'hangThenFail'
  | 'answerLate'
  | ServiceError;

const CHANGING: readonly Operation[] = [
  'ensure',
  'delete',
  'ensureVolume',
  'deleteVolume',
  'receiveCopy',
  'takeSnapshot',
  'deleteSnapshot',
];

export type Call = { operation: Operation; machineId: string };

export class Calls {
  readonly received: Call[] = [];
  /** The work of each call that changes something, so that a test can repeat it. */
  readonly changesMade: (() => unknown)[] = [];
  /** Every call with one of these ids fails, until `heal`. */
  readonly refused = new Set<string>();
  readonly #faults = new Map<Operation, { fault: Fault; times: number }>();
  #releases: (() => void)[] = [];

  plan(operation: Operation, fault: Fault, times: number): void {
    this.#faults.set(operation, { fault, times });
  }

  heal(): void {
    this.#faults.clear();
    this.refused.clear();
    this.release();
  }

  /** Lets the calls that hang now continue. */
  release(): void {
    for (const release of this.#releases.splice(0)) release();
  }

  /** Does the work of a call and answers it, or lets it go wrong as planned. */
  handle = async (operation: Operation, machineId: string, reply: FastifyReply, act: () => unknown) => {
    this.received.push({ operation, machineId });
    if (CHANGING.includes(operation)) this.changesMade.push(act);
    const planned = this.refused.has(machineId) ? 'fail' : this.#take(operation);
    if (planned === 'drop') return drop(reply);
    if (planned === 'hang' || planned === 'hangAfter' || planned === 'hangThenFail') {
      if (planned === 'hangAfter') act();
      await this.#released();
      if (planned === 'hangAfter') return drop(reply);
    }
    if (planned === 'fail' || planned === 'hangThenFail')
      throw new ServiceError('internal_error', 'The fake host was told to fail.');
    if (planned instanceof ServiceError) throw planned;
    const result = await act();
    if (planned === 'answerLate') await this.#released();
    if (planned === 'dropAfter') return drop(reply);
    if (planned === 'failAfter') throw new ServiceError('internal_error', 'The fake host failed half-way.');
    return reply.send(result);
  };

  /** Counts a call to a guest. Throws the error that a test has planned for it; guests have no other faults. */
  countGuestCall(operation: Operation, machineId: string): void {
    this.received.push({ operation, machineId });
    const planned = this.#take(operation);
    if (planned instanceof ServiceError) throw planned;
  }

  #released(): Promise<void> {
    return new Promise((resolve) => this.#releases.push(resolve));
  }

  #take(operation: Operation): Fault | undefined {
    const planned = this.#faults.get(operation);
    if (!planned || planned.times <= 0) return undefined;
    planned.times--;
    return planned.fault;
  }
}

export type Handle = Calls['handle'];

function drop(reply: FastifyReply): FastifyReply {
  reply.hijack();
  reply.raw.destroy();
  return reply;
}
