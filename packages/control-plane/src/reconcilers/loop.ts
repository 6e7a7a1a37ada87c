// The reconciler: these tasks find and finish everything that a crash, a lost connection or a failed undo has left
// unfinished. There is no other code for recovery.
import type { App } from '../app.ts';
import { createGuard } from '../billing/guard.ts';
import { giveNotices } from '../billing/notices.ts';
import { createReclaimer } from '../billing/reclaimer.ts';
import { repriceAccounts } from '../billing/reprice.ts';
import { chargeDueAccounts } from '../billing/round.ts';
import { createCollector } from '../blobs/collect.ts';
import { createPublisher } from '../blobs/publisher.ts';
import { sendDueMails } from '../mail/outbox.ts';
import { createAwayWatch } from './away.ts';
import { emptyDraining } from './drain.ts';
import { machineComparison } from './drift.ts';
import { createDueRunner } from './due.ts';
import { factComparison } from './host-facts.ts';
import { HOUSEKEEPING_MS, HOUSEKEEPING_RETRY_MS, keepHouse } from './housekeeping.ts';
import { jobComparison } from './jobs.ts';
import { createRounds } from './rounds.ts';
import { snapshotComparison } from './snapshots.ts';
import { startTask, type Task } from './task.ts';
import { volumeComparison } from './volumes.ts';

export type Reconciler = {
  /** Requests a pass of every task now. */
  signal(): void;
  /** Compares a host with its rows now, if this replica listens to it. Returns at once. */
  suspect(hostId: string): void;
  /** Compares all hosts that this replica listens to with their rows now. Returns at once. */
  suspectAll(): void;
  /** Runs a full pass of every task. Waits for all passes and for the operations that they started. */
  runOnce(): Promise<void>;
  /** Stops all tasks. Waits for running passes and for the operations that they started. */
  stop(): Promise<void>;
};

/** Starts all tasks. Their first passes begin at once. */
export function startReconciler(app: App): Reconciler {
  const { reconcileMs, chargeMs, guardMs, reclaimMs, mailMs, blobsMs } = app.config.timing;
  const rounds = createRounds(
    app,
    [machineComparison, volumeComparison, snapshotComparison, jobComparison, factComparison].map((of) => of(app)),
  );
  const away = createAwayWatch(app);
  let nextHousekeeping = 0;
  const housekeeping = async () => {
    if (performance.now() < nextHousekeeping) return;
    const isComplete = await keepHouse(app);
    nextHousekeeping = performance.now() + (isComplete ? HOUSEKEEPING_MS : HOUSEKEEPING_RETRY_MS);
  };
  const due = createDueRunner(app);
  const guard = createGuard(app);
  const reclaimer = createReclaimer(app);
  const { objects } = app;
  const publisher = objects && createPublisher(app, objects);
  const collector = objects && createCollector(app, objects);
  const tasks: Task[] = [
    startTask(app, 'housekeeping', reconcileMs, housekeeping),
    startTask(app, 'operations that are due', reconcileMs, due.take),
    startTask(app, 'comparisons with the hosts', reconcileMs, rounds.pass),
    startTask(app, 'hosts that are drained', reconcileMs, () => emptyDraining(app)),
    startTask(app, 'hosts that are away', reconcileMs, away.pass),
    startTask(app, 'charges', Math.min(guardMs, chargeMs), () => meter(app)),
    startTask(app, 'spend guard', guardMs, guard.pass),
    startTask(app, 'warnings about balances', reclaimMs, () => giveNotices(app)),
    startTask(app, 'reclaimer', reclaimMs, reclaimer.pass),
    startTask(app, 'mails', mailMs, () => sendDueMails(app)),
    ...(publisher ? [startTask(app, 'publications', reconcileMs, publisher.pass)] : []),
    ...(collector ? [startTask(app, 'unused blobs', blobsMs.every, collector.pass)] : []),
  ];
  const settled = () =>
    Promise.all([
      rounds.settled(),
      away.settled(),
      due.settled(),
      guard.settled(),
      reclaimer.settled(),
      publisher?.settled(),
    ]);
  return {
    signal: () => {
      for (const task of tasks) task.signal();
    },
    suspect: rounds.suspect,
    suspectAll: rounds.suspectAll,
    runOnce: async () => {
      await Promise.all([...tasks.map((task) => task.runOnce()), rounds.runOnce()]);
      await settled();
    },
    stop: async () => {
      await Promise.all(tasks.map((task) => task.stop()));
      await settled();
    },
  };
}

async function meter(app: App): Promise<void> {
  await repriceAccounts(app);
  await chargeDueAccounts(app);
}
