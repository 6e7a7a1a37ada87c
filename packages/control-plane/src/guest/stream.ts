// The one place where a stream between a client and a machine is authorised, counted and ended. Whatever ends a stream
// early, its result rejects with a ServiceError that says why, which the feature tells its client.
import type { Duplex } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { GuestStreamName } from '@sandbar/contract/guest-calls.ts';
import type { App } from '../app.ts';
import { firstOf } from '../http/ending.ts';
import type { Places } from '../http/places.ts';
import type { Caller } from '../http/route-config.ts';
import { findRunningMachine } from '../machines/running.ts';
import { isShuttingDown } from '../operations/refusals.ts';
import { toGuestRefusal } from './answer.ts';
import { explainBreak } from './broken.ts';

/** The streams that end by themselves. After a shutdown began, they may go on for a while. The others end at once. */
const TRANSFERS: ReadonlySet<GuestStreamName> = new Set([
  'files.read',
  'files.archive',
  'files.write',
  'files.unpack',
  'ports.connect',
]);

/** The streams that change nothing. A suspended account may use them. */
const READING: ReadonlySet<GuestStreamName> = new Set(['files.read', 'files.archive', 'files.watch']);

export type StreamOptions = {
  /** Whether opening waits up to 30 s for a machine that is on its way to running. */
  waits: boolean;
  /** Counts the open streams of each account. */
  places: Places;
  /** Aborted when the client has gone. */
  signal: AbortSignal;
};

export type MachineStream = {
  /** From the guest: check it with `checkAnswer`. */
  head: unknown;
  /**
   * `end()` ends the direction to the machine. The readable side ends after the machine's last byte. A stream that ends
   * early is destroyed and never ends. Destroy it when the client has gone. It never emits an unhandled error.
   */
  duplex: Duplex;
  /**
   * From the guest: check it with `checkAnswer`. Rejects with the ServiceError that says why the stream ended early.
   */
  result: Promise<unknown>;
};

/**
 * Opens a stream to the guest of a machine. Throws `rate_limited` when the account has too many streams, `not_found`
 * for an absent or foreign machine, `conflict` for a machine that does not run or is too old, `unauthenticated` when
 * the credential ends meanwhile, `forbidden` when the account is suspended meanwhile, `host_unavailable`,
 * `shutting_down`, and the refusals of the guest.
 */
export async function openGuestStream(
  app: App,
  caller: Caller,
  machineId: string,
  name: GuestStreamName,
  params: object,
  { waits, places, signal }: StreamOptions,
): Promise<MachineStream> {
  // Take the place first: an account that has too many streams is refused before any work is done for it.
  const leave = places.take(caller.accountId);
  const ending = watchForEnd(app, caller, name, signal);
  const stop = () => {
    leave();
    ending.stop();
  };
  try {
    const machine = await findRunningMachine(app, caller.accountId, machineId, waits);
    ending.signal.throwIfAborted();
    // Our own reason to end the stream comes before whatever the host or the guest said about it.
    const explain = async (error: unknown): Promise<never> => {
      if (ending.signal.aborted) throw ending.signal.reason;
      throw await explainBreak(app, caller.accountId, machine.id, toGuestRefusal(error, name));
    };
    const client = app.hosts.client(machine.host_id);
    const { head, duplex, result } = await client
      .openStream(machine.id, name, params, ending.signal)
      .catch((error: unknown) => explain(error));
    app.tracing.event('stream opened', { 'sandbar.stream': name });
    // If the stream was cut right after it was opened, `close` was emitted already.
    if (duplex.closed) stop();
    else duplex.once('close', stop);
    const explained = result.catch(explain);
    explained.catch(() => {});
    return { head, duplex, result: explained };
  } catch (error) {
    stop();
    throw error;
  }
}

/**
 * Returns a signal that is aborted, with a ServiceError, when the client goes away, its credential ends, its account is
 * suspended or the service shuts down. `stop` ends the watch.
 */
function watchForEnd(
  app: App,
  caller: Caller,
  name: GuestStreamName,
  client: AbortSignal,
): { signal: AbortSignal; stop(): void } {
  const credential = app.credentials.watch(caller, READING.has(name) ? 'read' : 'change');
  const ending = firstOf([
    [client, () => (client.reason instanceof ServiceError ? client.reason : clientHasGone())],
    [TRANSFERS.has(name) ? app.cutoff : app.closing, isShuttingDown],
    [credential.signal, () => credential.signal.reason],
  ]);
  const stop = () => {
    credential.stop();
    ending.stop();
  };
  return { signal: ending.signal, stop };
}

const clientHasGone = (): ServiceError => new ServiceError('conflict', 'The client closed the connection.');
