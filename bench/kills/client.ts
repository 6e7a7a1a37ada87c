// One client. It chooses operations by the seed and performs them one after the other until the kills are over. Then it
// checks all its machines and volumes.
import { checkDisk } from './acts/disks.ts';
import { rootOf, settleJobs, startWriter } from './acts/jobs.ts';
import { createMachine, destroyMachine, startMachine, stopMachine } from './acts/machines.ts';
import { recoverMachine } from './acts/recover.ts';
import { deleteSnapshot, restoreSnapshot, takeSnapshot } from './acts/snapshots.ts';
import { uploadFile } from './acts/uploads.ts';
import { attachVolume, createVolume, deleteVolume, detachVolume, mountOf } from './acts/volumes.ts';
import { type ClientContext, Contradiction, MachineDied, wasEnded } from './client-context.ts';
import { copyDisk, type Machine } from './model.ts';
import { pickWeighted } from './random.ts';
import { sendPatiently } from './requests.ts';
import { topUp } from './wallet.ts';

const MOST_SNAPSHOTS = 3;
const MOST_LONG_JOBS = 3;
/** The probability that a client waits for its jobs before it stops or restores their machine. */
const PATIENT_SHARE = 0.7;

/** The weight, among those of the other operations, with which a client tops up before its wallet is empty. */
const TOP_UP_WEIGHT = 0.6;

type Act = readonly [weight: number, perform: () => Promise<unknown>];

/** Runs one client. `machines` is the most machines that it has at a time. */
export async function runClient(context: ClientContext, machines: number, isOver: () => boolean): Promise<void> {
  while (!isOver()) {
    context.signal.throwIfAborted();
    const machine = context.random.pick(context.machines);
    const acts = [...actsWithout(context, machines), ...(machine ? actsOn(context, machine) : [])];
    const perform = pickWeighted(context.random, acts);
    await guard(context, machine, async () => perform?.());
  }
}

/** Checks the files of every machine and volume, and changes nothing. */
export async function checkEverything(context: ClientContext): Promise<void> {
  for (const machine of [...context.machines]) await guard(context, machine, () => checkMachine(context, machine));
  for (const volume of context.volumes.filter((one) => one.machine === undefined)) {
    const machine = context.machines[0] ?? (await createMachine(context));
    await guard(context, machine, async () => {
      if (machine.state === 'stopped') await startMachine(context, machine);
      await attachVolume(context, volume, machine);
      await checkDisk(context, machine, mountOf(volume));
    });
  }
}

/** Destroys all machines and volumes of the client, and checks that each delete succeeds. */
export async function removeEverything(context: ClientContext): Promise<void> {
  for (const machine of [...context.machines]) {
    await guard(context, machine, async () => {
      await settleJobs(context, machine);
      await destroyMachine(context, machine, false);
    });
  }
  for (const volume of [...context.volumes]) await guard(context, undefined, () => deleteVolume(context, volume));
}

/**
 * Performs an operation. If the VM of the machine was killed, or the machine was stopped by the spend guard, it
 * recovers the machine. If the service gave an inexplicable answer, it gives the machine up.
 */
async function guard(context: ClientContext, machine: Machine | undefined, act: () => Promise<unknown>): Promise<void> {
  let perform = act;
  for (;;) {
    try {
      await perform();
      return;
    } catch (error) {
      if (error instanceof MachineDied) {
        const { machine: died } = error;
        perform = () => recoverMachine(context, died);
      } else if (error instanceof Contradiction) {
        if (machine) await giveUp(context, machine);
        return;
      } else throw error;
    }
  }
}

async function checkMachine(context: ClientContext, machine: Machine): Promise<void> {
  if (await wasEnded(context, machine)) throw new MachineDied(machine, 'before the last check');
  await settleJobs(context, machine);
  if (machine.state === 'stopped') await startMachine(context, machine);
  await checkDisk(context, machine, rootOf(machine));
  for (const volume of context.volumes.filter((one) => one.machine === machine)) {
    await checkDisk(context, machine, mountOf(volume));
  }
}

/**
 * Gives up a machine whose state the client cannot know any more. The checks at the end then accept any feed entry
 * about it.
 */
async function giveUp(context: ClientContext, machine: Machine): Promise<void> {
  const volumes = context.volumes.filter((volume) => volume.machine === machine);
  for (const { id } of [machine, ...volumes]) context.ledger.doubt(id);
  context.casualties.withdraw(machine.id);
  context.machines = context.machines.filter((other) => other !== machine);
  context.volumes = context.volumes.filter((volume) => volume.machine !== machine);
  const path = `/v1/machines/${machine.id}?delete_snapshots=true`;
  const { status } = await sendPatiently(context.service, { method: 'DELETE', path }, context);
  context.journal.write(`${context.who} gives up ${machine.id}: its delete answered ${status}`);
}

function actsWithout(context: ClientContext, machines: number): Act[] {
  const free = context.volumes.filter((volume) => volume.machine === undefined);
  const [volume] = free;
  return [
    [context.machines.length === 0 ? 50 : context.machines.length < machines ? 3 : 0, () => createMachine(context)],
    [context.volumes.length === 0 && !context.isFleet ? 2 : 0, () => createVolume(context)],
    [volume ? 0.5 : 0, async () => volume && deleteVolume(context, volume)],
    [context.wallet ? TOP_UP_WEIGHT : 0, async () => context.wallet && topUp(context, context.wallet)],
  ];
}

function actsOn(context: ClientContext, machine: Machine): Act[] {
  const isRunning = machine.state === 'running';
  const running = (weight: number) => (isRunning ? weight : 0);
  const snapshot = context.random.pick(machine.snapshots);
  const free = context.volumes.find((volume) => volume.machine === undefined);
  const attached = context.volumes.find((volume) => volume.machine === machine);
  return [
    [running(5), () => runJob(context, machine)],
    [running(machine.jobs.length < MOST_LONG_JOBS ? 3 : 0), () => startWriter(context, machine, rootOf(machine), true)],
    [running(machine.jobs.length > 0 ? 2 : 0), () => settleJobs(context, machine)],
    [running(1.5), () => uploadFile(context, machine)],
    [running(1), () => checkDisk(context, machine, rootOf(machine))],
    [running(2), () => stop(context, machine)],
    [isRunning ? 0 : 6, () => startMachine(context, machine)],
    [machine.snapshots.length < MOST_SNAPSHOTS ? 2 : 0, () => takeSnapshot(context, machine)],
    [snapshot ? 1.5 : 0, async () => snapshot && restore(context, machine, snapshot)],
    [snapshot ? 0.5 : 0, async () => snapshot && deleteSnapshot(context, machine, snapshot)],
    [free ? 3 : 0, async () => free && attachVolume(context, free, machine)],
    [running(attached ? 3 : 0), async () => attached && startWriter(context, machine, mountOf(attached), false)],
    [running(attached ? 1 : 0), async () => attached && checkDisk(context, machine, mountOf(attached))],
    [attached ? 1.5 : 0, async () => attached && detach(context, machine, attached)],
    [1, () => destroy(context, machine)],
  ];
}

async function runJob(context: ClientContext, machine: Machine): Promise<void> {
  await startWriter(context, machine, rootOf(machine), false);
  await settleJobs(context, machine);
}

async function stop(context: ClientContext, machine: Machine): Promise<void> {
  if (context.random.chance(PATIENT_SHARE)) await settleJobs(context, machine);
  await stopMachine(context, machine);
  await settleJobs(context, machine, true);
}

async function restore(
  context: ClientContext,
  machine: Machine,
  snapshot: Machine['snapshots'][number],
): Promise<void> {
  if (context.random.chance(PATIENT_SHARE)) await settleJobs(context, machine);
  await restoreSnapshot(context, machine, snapshot);
}

/** Waits for the jobs of the machine first, because the service refuses to detach a volume that a job uses. */
async function detach(
  context: ClientContext,
  machine: Machine,
  volume: ClientContext['volumes'][number],
): Promise<void> {
  await settleJobs(context, machine);
  await detachVolume(context, volume, machine);
}

/** Destroys a machine. Sometimes a new machine from one of its snapshots or from its kept disk replaces it. */
async function destroy(context: ClientContext, machine: Machine): Promise<void> {
  await settleJobs(context, machine);
  const snapshot = context.random.pick(machine.snapshots);
  if (snapshot && context.random.chance(0.5)) {
    const next = await createMachine(context, { disk: copyDisk(snapshot.disk), snapshot_id: snapshot.id });
    await checkDisk(context, next, rootOf(next));
  }
  const diskId = await destroyMachine(context, machine, !snapshot && context.random.chance(0.4));
  if (diskId === undefined) return;
  const next = await createMachine(context, { disk: machine.disk, root_volume_id: diskId });
  await checkDisk(context, next, rootOf(next));
}
