// The reconciler: these tasks find and finish everything that a crash, a lost connection or a failed undo has left
// unfinished. There is no other code for recovery.
import type { App } from '../app.ts';
import { createGuard } from '../billing/guard.ts';
import { giveNotices } from '../billing/notices.ts';
import { createReclaimer } from '../billing/reclaimer.ts';
import { repriceAccounts } from '../billing/reprice.ts';
import { chargeDueAccounts } from '../billing/round.ts';
import { sendDueMails } from '../mail/outbox.ts';
import { compareWithHosts } from './drift.ts';
import { createDueRunner } from './due.ts';
import { FACTS_MS, refreshHosts } from './host-facts.ts';
import { HOUSEKEEPING_MS, HOUSEKEEPING_RETRY_MS, keepHouse } from './housekeeping.ts';
import { settleRunningJobs } from './jobs.ts';
import { createOutputWatch } from './outputs.ts';
import { createSightings } from './sightings.ts';
import { compareSnapshots } from './snapshots.ts';
import { startTask, type Task } from './task.ts';
import { compareVolumes } from './volumes.ts';

export type Reconciler = {
  /** Requests a pass of every task now. */
  signal(): void;
  /** Runs a full pass of every task. Waits for all passes and for the operations that they started. */
  runOnce(): Promise<void>;
  /** Stops all tasks. Waits for running passes and for the operations that they started. */
  stop(): Promise<void>;
};

/** Starts all tasks. Their first passes begin at once. */
export function startReconciler(app: App): Reconciler {
  const { reconcileMs, reconcileJobsMs, chargeMs, guardMs, reclaimMs, mailMs } = app.config.timing;
  const unknownMachines = createSightings();
  const outputs = createOutputWatch(app);
  const volumes = { lost: createSightings(), unknown: createSightings() };
  const snapshots = { lost: createSightings(), unknown: createSightings() };
  let nextHousekeeping = 0;
  const housekeeping = async () => {
    if (performance.now() < nextHousekeeping) return;
    const isComplete = await keepHouse(app);
    nextHousekeeping = performance.now() + (isComplete ? HOUSEKEEPING_MS : HOUSEKEEPING_RETRY_MS);
  };
  const due = createDueRunner(app);
  const guard = createGuard(app);
  const reclaimer = createReclaimer(app);
  const tasks: Task[] = [
    startTask(app, 'housekeeping', reconcileMs, housekeeping),
    startTask(app, 'operations that are due', reconcileMs, due.take),
    startTask(app, 'machines of the hosts', reconcileMs, () => compareWithHosts(app, unknownMachines, outputs)),
    startTask(app, 'volumes of the hosts', reconcileJobsMs, () => compareVolumes(app, volumes)),
    startTask(app, 'snapshots of the hosts', reconcileJobsMs, () => compareSnapshots(app, snapshots)),
    startTask(app, 'running jobs', reconcileJobsMs, () => settleRunningJobs(app)),
    startTask(app, 'charges', Math.min(guardMs, chargeMs), () => meter(app)),
    startTask(app, 'facts of the hosts', Math.min(reconcileJobsMs, FACTS_MS), () => refreshHosts(app)),
    startTask(app, 'spend guard', guardMs, guard.pass),
    startTask(app, 'warnings about balances', reclaimMs, () => giveNotices(app)),
    startTask(app, 'reclaimer', reclaimMs, reclaimer.pass),
    startTask(app, 'mails', mailMs, () => sendDueMails(app)),
  ];
  const settled = () => Promise.all([due.settled(), guard.settled(), reclaimer.settled()]);
  return {
    signal: () => {
      for (const task of tasks) task.signal();
    },
    runOnce: async () => {
      await Promise.all(tasks.map((task) => task.runOnce()));
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
