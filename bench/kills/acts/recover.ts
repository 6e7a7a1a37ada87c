// What a client does after the VM of one of its machines was killed, or the spend guard stopped it: it asks for the
// machine's state. If the machine is in error, the client destroys it, and may make a new machine from the root disk.
import { setTimeout as delay } from 'node:timers/promises';
import { type ClientContext, contradict, MachineDied } from '../client-context.ts';
import { eitherDisk, type Machine } from '../model.ts';
import { checkDisk } from './disks.ts';
import { rootOf, runReader, settleJobs } from './jobs.ts';
import { createMachine, destroyMachine, readMachine } from './machines.ts';
import { adoptSnapshots } from './snapshots.ts';
import { relearnVolumes } from './volumes.ts';

const GIVE_UP_MS = 600_000;
const POLL_MS = 100;
/** The probability that the client keeps the root disk of a machine in error and makes a new machine from it. */
const KEPT_SHARE = 0.6;

export async function recoverMachine(context: ClientContext, machine: Machine): Promise<void> {
  const ends = context.casualties.endsOf(machine.id);
  const state = await findState(context, machine);
  await settleJobs(context, machine, true);
  await relearnVolumes(context, machine);
  await adoptSnapshots(context, machine);
  if (machine.restoring) machine.disk = eitherDisk(machine.disk, machine.restoring);
  machine.restoring = undefined;
  context.journal.act(context.who, `ended machine is ${state}`, machine.id);
  if (state === 'error') {
    await replaceMachine(context, machine);
    return;
  }
  machine.state = state;
  machine.seen = ends;
}

/**
 * Waits until no operation on the machine is under way, and returns its state. A machine shown as running may have a
 * dead VM that the host has not noticed, or a new VM from a restore or start, so it is returned only after a job has
 * succeeded in it.
 */
async function findState(context: ClientContext, machine: Machine): Promise<'error' | Machine['state']> {
  for (const until = performance.now() + GIVE_UP_MS; ; ) {
    const { state, operation } = await readMachine(context, machine.id);
    if (operation === null && (state === 'error' || state === 'stopped')) return state;
    if (operation === null && state === 'running' && (await runsJobs(context, machine))) return state;
    if (performance.now() > until) {
      throw contradict(context, `${machine.id}, which was ended, is still ${state} with ${JSON.stringify(operation)}`);
    }
    await delay(POLL_MS, undefined, { signal: context.signal });
  }
}

async function runsJobs(context: ClientContext, machine: Machine): Promise<boolean> {
  try {
    return (await runReader(context, machine, 'true')) !== undefined;
  } catch (error) {
    if (error instanceof MachineDied) return false;
    throw error;
  }
}

async function replaceMachine(context: ClientContext, machine: Machine): Promise<void> {
  const diskId = await destroyMachine(context, machine, context.random.chance(KEPT_SHARE));
  if (diskId === undefined) return;
  const next = await createMachine(context, { disk: machine.disk, root_volume_id: diskId });
  await checkDisk(context, next, rootOf(next));
}
