// Creates, stops, starts and destroys a machine, and checks each answer. The ledger notes the feed entry that each
// operation must have.
import type { Machine as MachineBody } from '@sandbar/contract/machine.ts';
import { ask, type ClientContext, contradict, MachineDied, wasEnded, wasStoppedByGuard } from '../client-context.ts';
import { type Disk, emptyDisk, type Machine } from '../model.ts';

/** The smallest machine that the base image boots in. */
const SMALL = { memory_mb: 128, vcpus: 1 };
const ROOTFS_GB = 2;
/** The probability that a new machine is declared expendable, so that the killer may kill its VM. */
const EXPENDABLE_SHARE = 0.5;

/** What a machine is made from: the image, a snapshot or a kept root disk. */
export type Source = { disk: Disk; snapshot_id?: string; root_volume_id?: string };

export async function createMachine(context: ClientContext, source: Source = { disk: emptyDisk() }): Promise<Machine> {
  const { disk, ...from } = source;
  const name = `${context.who}-${context.nextNumber()}`;
  const size = from.snapshot_id === undefined && from.root_volume_id === undefined ? { rootfs_size_gb: ROOTFS_GB } : {};
  const { body, uncertain } = await ask<MachineBody>(context, {
    method: 'POST',
    path: '/v1/machines',
    body: { ...SMALL, ...size, ...from, name },
    headers: { 'idempotency-key': name },
    accepts: [200, 201],
  });
  const machine: Machine = {
    id: body.id,
    name,
    state: 'running',
    disk,
    snapshots: [],
    jobs: [],
    seen: context.casualties.endsOf(body.id),
  };
  context.machines.push(machine);
  context.ledger.require(`machine.created ${body.id}`);
  context.journal.act(context.who, Object.keys(from).length > 0 ? 'create from a disk' : 'create', body.id);
  // The answer to a repeated create has the machine's present state.
  if (body.name !== name || (body.state !== 'running' && !(await wasEnded(context, machine)))) {
    contradict(
      context,
      `create ${name} answered a machine ${body.name} that is ${body.state} after ${uncertain} attempts`,
    );
  }
  if (context.random.chance(EXPENDABLE_SHARE)) context.casualties.declare(body.id);
  return machine;
}

export async function stopMachine(context: ClientContext, machine: Machine): Promise<void> {
  await change(context, machine, { kind: 'stop', action: 'machine.stopped', to: 'stopped' });
}

export async function startMachine(context: ClientContext, machine: Machine): Promise<void> {
  await change(context, machine, { kind: 'start', action: 'machine.started', to: 'running' });
}

type Change = { kind: 'stop' | 'start'; action: string; to: Machine['state'] };

async function change(context: ClientContext, machine: Machine, { kind, action, to }: Change): Promise<void> {
  const key = `${action} ${machine.id}`;
  context.ledger.allow(key);
  const path = `/v1/machines/${machine.id}/${kind}`;
  const { body } = await ask<MachineBody>(context, { method: 'POST', path, accepts: [200], machine });
  if (kind === 'stop' && (await wasStoppedByGuard(context, machine))) {
    // The guard may have stopped the machine first. Then the client's stop had nothing to do, and has no entry.
    throw new MachineDied(machine, 'the spend guard stopped it as well');
  }
  context.ledger.acknowledge(key);
  context.journal.act(context.who, kind, machine.id);
  await checkState(context, machine, body, to, kind);
  machine.state = to;
}

/**
 * Checks the state after an operation. If someone else may have ended the machine between the operation and its answer,
 * other states are allowed.
 */
export async function checkState(
  context: ClientContext,
  machine: Machine,
  { state, operation }: MachineBody,
  to: Machine['state'],
  kind: string,
): Promise<void> {
  if ((state === to && operation === null) || (await wasEnded(context, machine))) return;
  contradict(context, `${kind} of ${machine.id} answered 200, but it is ${state} with ${JSON.stringify(operation)}`);
}

/**
 * Destroys a machine in any state, together with its snapshots. Returns the id of the root disk when the disk is kept.
 */
export async function destroyMachine(
  context: ClientContext,
  machine: Machine,
  keepDisk: boolean,
): Promise<string | undefined> {
  const { id, snapshots } = machine;
  const attached = context.volumes.filter((volume) => volume.machine === machine);
  const keys = [
    `machine.destroyed ${id}`,
    ...attached.map((volume) => `volume.detached ${id} ${volume.id}`),
    ...snapshots.map((snapshot) => `snapshot.deleted ${id} ${snapshot.id}`),
  ];
  for (const key of keys) context.ledger.allow(key);
  const { body } = await ask<MachineBody>(context, {
    method: 'DELETE',
    path: `/v1/machines/${id}?delete_snapshots=true&preserve_storage=${keepDisk}`,
    accepts: [200],
    // A repeated delete is refused because the first one was carried out.
    findResult: async ({ status }) => (status === 404 ? readDestroyed(context, id) : undefined),
  });
  if (body.state !== 'destroyed')
    throw contradict(context, `destroy of ${id} answered a machine that is ${body.state}`);
  const metadata = { preserve_storage: keepDisk, snapshots_deleted: snapshots.length };
  for (const key of keys) context.ledger.acknowledge(key, key.startsWith('machine.') ? metadata : {});
  context.journal.act(context.who, keepDisk ? 'destroy, disk kept' : 'destroy', id);
  for (const volume of attached) volume.machine = undefined;
  forgetMachine(context, machine);
  if (!keepDisk) return undefined;
  if (body.root_volume_id === null) throw contradict(context, `destroy of ${id} kept no disk`);
  return body.root_volume_id;
}

async function readDestroyed(context: ClientContext, id: string): Promise<MachineBody | undefined> {
  const body = await readMachine(context, id);
  return body.state === 'destroyed' ? body : undefined;
}

export async function readMachine(context: ClientContext, id: string): Promise<MachineBody> {
  const { body } = await ask<MachineBody>(context, { method: 'GET', path: `/v1/machines/${id}`, accepts: [200] });
  return body;
}

/** Removes the machine from the client's knowledge, and stops the killer from killing its VM. */
export function forgetMachine(context: ClientContext, machine: Machine): void {
  context.casualties.withdraw(machine.id);
  context.machines = context.machines.filter((other) => other !== machine);
}
