// Holds the leases of this replica on hosts, and listens to those hosts.
//
//   free --taken at random, up to this replica's share--> held: its event stream is kept open
//    ^                                                     |
//    \---given back: above the share, or this replica ends-/
//    \---expired: this replica died, or does not reach the database
//
// A replica's share is the number of hosts divided by the number of replicas that are alive, rounded up. A replica that
// holds more gives the surplus back. So hosts move only when a replica starts or ends.
import type { App } from '../app.ts';
import { createPlaces } from '../concurrency.ts';
import { CHANNELS, type Notifications, notify } from '../db/notifications.ts';
import { startTask, type Task } from '../reconcilers/task.ts';
import { releaseLeases, removeReplica, renewLeases, takeLeases } from './leases.ts';
import { listenToHost } from './listener.ts';

export type LeaseKeeper = {
  /** Looks for hosts soon. Returns at once. */
  signal(): void;
  /** Ends all streams and gives all leases back. */
  stop(): Promise<void>;
};

/**
 * After this many leases' length without reaching a host that another replica reaches, a replica gives it back. It does
 * not take the host again for ten times as long.
 */
const YIELD_AFTER_LEASES = 2;
const AVOID_FACTOR = 10;

/**
 * How many hosts send their initial state at the same time. If a thousand did so at once, it would take much memory. A
 * host that hangs delays others by a second at most.
 */
const SYNCS = 16;
const LONGEST_SYNC_MS = 1_000;

type Stream = { abort: AbortController; done: Promise<void> };

/** Starts to take leases. */
export function keepLeases(app: App, notifications: Notifications): LeaseKeeper {
  const { replicaId } = app;
  const { leaseTtlMs: ttlMs, leaseRenewMs, hostSeenMs: seenMs } = app.config.timing;
  const streams = new Map<string, Stream>();
  /** Streams that were aborted and have not ended yet: they may wait for an answer of their host. */
  const ending = new Map<string, Promise<void>>();
  const enterSync = createPlaces(SYNCS, LONGEST_SYNC_MS);
  const avoided = new Map<string, number>();
  let validUntil = 0;

  const listen = (hostId: string) => {
    if (streams.has(hostId)) return;
    const abort = new AbortController();
    const begin = async () => {
      await ending.get(hostId);
      if (!abort.signal.aborted) await listenToHost(app, hostId, enterSync, abort.signal);
    };
    streams.set(hostId, { abort, done: begin() });
  };
  const end = (hostIds: readonly string[]) => {
    for (const hostId of hostIds) {
      const stream = streams.get(hostId);
      if (!stream) continue;
      streams.delete(hostId);
      stream.abort.abort();
      const ended = stream.done.finally(() => {
        if (ending.get(hostId) === ended) ending.delete(hostId);
      });
      ending.set(hostId, ended);
    }
  };
  const giveBack = async (hostIds: readonly string[]) => {
    if (hostIds.length === 0) return;
    end(hostIds);
    await releaseLeases(app.db, replicaId, hostIds);
    await notify(app.db, CHANNELS.leases);
  };
  /** Returns the hosts that this replica fails to reach, although another replica reaches them. */
  const toYield = (seen: readonly string[]): string[] => {
    const failing = app.presence.failing();
    const isLong = (since: number) => performance.now() - since > YIELD_AFTER_LEASES * ttlMs;
    return seen.filter((id) => isLong(failing.get(id) ?? Number.POSITIVE_INFINITY));
  };
  const pass = async () => {
    const began = performance.now();
    const seenIds = app.presence.takeSeen();
    const renewed = await renewLeases(app.db, { replicaId, ttlMs, seenMs, seenIds }).catch((error: unknown) => {
      for (const id of seenIds) app.presence.noteSeen(id);
      throw error;
    });
    // Replicas that hold more than their share learn at once that there is one more replica.
    if (validUntil === 0) await notify(app.db, CHANNELS.leases);
    validUntil = began + ttlMs;
    const held = new Set(renewed.held);
    end([...streams.keys()].filter((id) => !held.has(id)));
    if (renewed.held.some((id) => !streams.has(id))) await app.hosts.reload();

    const localId = app.hosts.localId();
    const yielded = toYield(renewed.seen);
    for (const id of yielded) avoided.set(id, performance.now() + AVOID_FACTOR * ttlMs);
    for (const [id, until] of avoided) if (until < performance.now()) avoided.delete(id);
    const shared = renewed.held.filter((id) => id !== localId && !yielded.includes(id) && isKnown(app, id));
    const share = Math.ceil(renewed.remoteHosts / renewed.replicas);
    const kept = new Set([...inRandomOrder(shared).slice(0, share), ...(localId ? [localId] : [])]);
    await giveBack(renewed.held.filter((id) => !kept.has(id)));
    for (const id of renewed.held) if (kept.has(id)) listen(id);

    const avoidIds = [...avoided.keys()];
    const wanted = Math.max(0, share - shared.length);
    if (wanted === 0 && (localId === undefined || held.has(localId))) return;
    const taken = await takeLeases(app.db, wanted, { replicaId, ttlMs, localId, avoidIds });
    if (taken.some((id) => !isKnown(app, id))) await app.hosts.reload();
    for (const id of taken) if (isKnown(app, id)) listen(id);
  };
  const passOrEnd = async () => {
    try {
      await pass();
    } catch (error) {
      // Another replica may hold the leases now.
      if (performance.now() > validUntil) end([...streams.keys()]);
      throw error;
    }
  };

  const task: Task = startTask(app, 'leases of the hosts', leaseRenewMs, passOrEnd);
  notifications.subscribe(CHANNELS.leases, task.signal);
  return {
    signal: task.signal,
    stop: async () => {
      await task.stop();
      const hostIds = [...streams.keys()];
      end(hostIds);
      await Promise.all(ending.values());
      try {
        await removeReplica(app.db, replicaId);
        await giveBack(hostIds);
      } catch (err) {
        app.log.debug({ err }, 'the leases of the hosts were not given back; they expire');
      }
    },
  };
}

/** Returns whether this replica has a client of the host. */
function isKnown(app: App, hostId: string): boolean {
  try {
    app.hosts.client(hostId);
    return true;
  } catch {
    return false;
  }
}

const inRandomOrder = (ids: readonly string[]): string[] =>
  ids
    .map((id) => ({ id, order: Math.random() }))
    .sort((a, b) => a.order - b.order)
    .map(({ id }) => id);
