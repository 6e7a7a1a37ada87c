// The metrics that come from the database: hosts, machines, operations under way and the ledger. They are the same on
// every replica, so a dashboard takes the maximum over the replicas and not the sum. A scrape sends each query once at
// most, and scrapes that follow within some seconds share the answers.
import { ALL_OPERATION_KINDS, MACHINE_STATES } from '@sandbar/contract/machine-states.ts';
import type { Registry } from 'prom-client';
import type { App } from '../app.ts';
import { countWaiting, PUBLICATION_KINDS, type PublicationFacts } from '../blobs/failing.ts';
import { addFactGauge, type FactValue } from './fact-gauge.ts';
import {
  type OperationFacts,
  readHosts,
  readLedgerLag,
  readMachines,
  readOperations,
  readOverdue,
} from './fleet-queries.ts';
import { HOST_GAUGES, HOST_LABELS, HOST_STATES, labelsOf, stateOf } from './host-gauges.ts';

/** How long what was read is used again, in milliseconds. */
const FRESH_MS = 5_000;
/** Ends the help text of every metric that comes from the database. */
export const SAME = 'From the database: the same on every replica, so take max and not sum.';

type Facts = Awaited<ReturnType<typeof readFacts>>;

/** Adds the gauges to the registry of a replica. While the database does not answer, scrapes leave them out. */
export function addFleetGauges(app: App, registry: Registry): void {
  const read = shared(() => readFacts(app), FRESH_MS);
  const add = (name: string, help: string, labelNames: readonly string[], values: (facts: Facts) => FactValue[]) =>
    addFactGauge(registry, { name, help: `${help} ${SAME}`, labelNames, read: async () => values(await read()) });

  for (const { name, help, value } of HOST_GAUGES) {
    const { overcommit } = app.config;
    add(name, help, HOST_LABELS, ({ hosts }) =>
      hosts.map((host) => ({ labels: labelsOf(host), value: value(host, overcommit) })),
    );
  }
  add(
    'sandbar_hosts',
    'Hosts by state: active, cordoned, emptying, or away (no replica reaches it).',
    ['state'],
    ({ hosts }) =>
      HOST_STATES.map((state) => ({
        labels: { state },
        value: hosts.filter((host) => stateOf(host, app.config.timing.hostSeenMs) === state).length,
      })),
  );
  add('sandbar_machines', 'Machines by state, without destroyed ones.', ['state'], ({ machines }) =>
    LIVE_STATES.map((state) => ({ labels: { state }, value: machines.find((row) => row.state === state)?.count ?? 0 })),
  );
  const byKind =
    (of: (row: OperationFacts) => number) =>
    ({ operations }: Facts) =>
      KINDS.map((kind) => {
        const row = operations.find((row) => row.kind === kind);
        return { labels: { kind }, value: row ? of(row) : 0 };
      });
  add(
    'sandbar_operations_under_way',
    'Operations that are not finished, by kind.',
    ['kind'],
    byKind((row) => row.count),
  );
  add(
    'sandbar_operations_failing',
    'Operations that are not finished after more than five attempts, by kind. sandbar doctor lists them.',
    ['kind'],
    byKind((row) => row.failing),
  );
  add(
    'sandbar_operations_oldest_age_seconds',
    'Age of the oldest operation that is not finished, by kind.',
    ['kind'],
    byKind((row) => row.oldest_age),
  );
  add(
    'sandbar_operations_overdue_seconds',
    'For how long an operation has been due that no replica works on.',
    [],
    ({ overdueSec }) => [{ labels: {}, value: overdueSec }],
  );
  const byPublication =
    (of: (row: PublicationFacts) => number) =>
    ({ publications }: Facts) =>
      PUBLICATION_KINDS.map((kind) => {
        const row = publications.find((row) => row.kind === kind);
        return { labels: { kind }, value: row ? of(row) : 0 };
      });
  add(
    'sandbar_publications_waiting',
    'Snapshots and images that are not in the object store yet, by kind: snapshot or image.',
    ['kind'],
    byPublication((row) => row.waiting),
  );
  add(
    'sandbar_publications_failing',
    'Snapshots and images whose publication to the object store has failed more than five times, by kind. sandbar ' +
      'doctor lists them.',
    ['kind'],
    byPublication((row) => row.failing),
  );
  add(
    'sandbar_ledger_lag_seconds',
    'Time since the last charge of the account that is to be charged next. Accounts are charged every 30 s.',
    [],
    ({ ledgerLagSec }) => [{ labels: {}, value: ledgerLagSec }],
  );
  addFactGauge(registry, {
    name: 'sandbar_database_up',
    help: 'Whether this replica could read the metrics that come from the database: 1 or 0.',
    labelNames: [],
    read: async () => {
      const isUp = await read().then(
        () => true,
        () => false,
      );
      return [{ labels: {}, value: isUp ? 1 : 0 }];
    },
  });
}

/** An expiry only waits for its time, so it is not under way. */
const KINDS = ALL_OPERATION_KINDS.filter((kind) => kind !== 'expire');
const LIVE_STATES = MACHINE_STATES.filter((state) => state !== 'destroyed');

async function readFacts({ db, objects }: App) {
  const [hosts, machines, operations, overdueSec, ledgerLagSec, publications] = await Promise.all([
    readHosts(db),
    readMachines(db),
    readOperations(db),
    readOverdue(db),
    readLedgerLag(db),
    objects ? countWaiting(db) : [],
  ]);
  return { hosts, machines, operations, overdueSec, ledgerLagSec, publications };
}

/** Returns a function that calls `read` when its last answer is older than `freshMs`, and else gives that answer. */
function shared<T>(read: () => Promise<T>, freshMs: number): () => Promise<T> {
  let last: Promise<T> | undefined;
  let readAt = Number.NEGATIVE_INFINITY;
  return () => {
    const now = performance.now();
    if (!last || now - readAt > freshMs) {
      readAt = now;
      last = read();
      // A failure is not kept: the next scrape asks again.
      last.catch(() => {
        last = undefined;
      });
    }
    return last;
  };
}
