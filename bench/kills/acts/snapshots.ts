// Takes, restores and deletes snapshots of a machine. If the answer to a snapshot request is lost, the retry takes a
// second snapshot.
import type { Machine as MachineBody } from '@sandbar/contract/machine.ts';
import type { Snapshot as SnapshotBody } from '@sandbar/contract/snapshot.ts';
import { ask, type ClientContext, contradict } from '../client-context.ts';
import { copyDisk, type Machine, type Snapshot } from '../model.ts';
import { settleJobs } from './jobs.ts';
import { checkState } from './machines.ts';

export async function takeSnapshot(context: ClientContext, machine: Machine): Promise<void> {
  const name = `${context.who}-${context.nextNumber()}`;
  machine.takes = name;
  const { body, uncertain } = await ask<SnapshotBody>(context, {
    method: 'POST',
    path: `/v1/machines/${machine.id}/snapshots`,
    body: { name },
    accepts: [201],
    machine,
  });
  context.journal.act(context.who, 'snapshot', `${body.id} of ${machine.id}`);
  const found = await adoptSnapshots(context, machine);
  if (found.length > 1 + uncertain || !found.includes(body.id)) {
    contradict(
      context,
      `snapshot ${name} of ${machine.id}, ${body.id}, is there as ${found} after ${uncertain} lost answers`,
    );
  }
}

/** Finds the snapshots that the last snapshot request made. Returns their ids. */
export async function adoptSnapshots(context: ClientContext, machine: Machine): Promise<string[]> {
  const name = machine.takes;
  if (name === undefined) return [];
  const path = `/v1/machines/${machine.id}/snapshots`;
  const { body } = await ask<{ snapshots: SnapshotBody[] }>(context, { method: 'GET', path, accepts: [200] });
  const found = body.snapshots.filter((snapshot) => snapshot.name === name);
  for (const { id, state, error } of found) {
    if (state !== 'ready') contradict(context, `snapshot ${id} of ${machine.id} is in ${state}: ${error}`);
    machine.snapshots.push({ id, disk: copyDisk(machine.disk) });
    context.ledger.require(`snapshot.created ${machine.id} ${id}`);
  }
  machine.takes = undefined;
  return found.map(({ id }) => id);
}

/** Restores a machine to a snapshot. The restore ends all jobs that run in the machine. */
export async function restoreSnapshot(context: ClientContext, machine: Machine, snapshot: Snapshot): Promise<void> {
  const key = `snapshot.restored ${machine.id} ${snapshot.id}`;
  context.ledger.allow(key);
  machine.restoring = snapshot.disk;
  const { body, uncertain } = await ask<MachineBody>(context, {
    method: 'POST',
    path: `/v1/snapshots/${snapshot.id}/restore`,
    accepts: [200],
    machine,
  });
  // A retry that starts after the first restore has ended is a second restore, with its own feed entry.
  context.ledger.allow(key, uncertain);
  context.ledger.acknowledge(key);
  context.journal.act(context.who, 'restore', `${snapshot.id} of ${machine.id}`);
  await checkState(context, machine, body, machine.state, 'restore');
  await settleJobs(context, machine, true);
  machine.disk = copyDisk(snapshot.disk);
  machine.restoring = undefined;
}

export async function deleteSnapshot(context: ClientContext, machine: Machine, snapshot: Snapshot): Promise<void> {
  const key = `snapshot.deleted ${machine.id} ${snapshot.id}`;
  context.ledger.allow(key);
  await ask(context, {
    method: 'DELETE',
    path: `/v1/snapshots/${snapshot.id}`,
    accepts: [204],
    // A repeated delete is refused because the first one was carried out.
    findResult: async ({ status }) => (status === 404 ? 'deleted' : undefined),
  });
  context.ledger.acknowledge(key);
  context.journal.act(context.who, 'delete a snapshot', `${snapshot.id} of ${machine.id}`);
  machine.snapshots = machine.snapshots.filter((other) => other !== snapshot);
}
