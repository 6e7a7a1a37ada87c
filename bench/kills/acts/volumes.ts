// Creates, attaches, detaches and deletes data volumes. If the answer to a create is lost, the retry makes a second
// volume.
import type { Volume as VolumeBody } from '@sandbar/contract/volume.ts';
import { ask, type ClientContext, contradict } from '../client-context.ts';
import { emptyDisk, type Machine, type Volume } from '../model.ts';
import type { Target } from './jobs.ts';

/** The smallest size that the service allows, in GB. */
const SIZE_GB = 5;

/** Returns the place on a volume where jobs write files. */
export const mountOf = ({ id, disk }: Volume): Target => ({ disk, folder: `/mnt/${id}/kept` });

export async function createVolume(context: ClientContext): Promise<void> {
  const name = `${context.who}-${context.nextNumber()}`;
  const request = { method: 'POST', path: '/v1/volumes', body: { name, size_gb: SIZE_GB }, accepts: [201] } as const;
  const { body, uncertain } = await ask<VolumeBody>(context, request);
  context.journal.act(context.who, 'create a volume', body.id);
  const list = { method: 'GET', path: '/v1/volumes', accepts: [200] } as const;
  const { volumes } = (await ask<{ volumes: VolumeBody[] }>(context, list)).body;
  const found = volumes.filter((volume) => volume.name === name);
  if (found.length > 1 + uncertain || !found.some(({ id }) => id === body.id)) {
    const ids = found.map(({ id }) => id);
    contradict(context, `volume ${name}, ${body.id}, is there as ${ids} after ${uncertain} lost answers`);
  }
  for (const { id, state } of found) {
    if (state !== 'available') contradict(context, `the new volume ${id} is ${state}`);
    context.ledger.require(`volume.created ${id}`);
    context.volumes.push({ id, name, machine: undefined, disk: emptyDisk() });
  }
}

export async function attachVolume(context: ClientContext, volume: Volume, machine: Machine): Promise<void> {
  const key = `volume.attached ${machine.id} ${volume.id}`;
  context.ledger.allow(key);
  const { body } = await ask<VolumeBody>(context, {
    method: 'POST',
    path: `/v1/volumes/${volume.id}/attach`,
    body: { machine_id: machine.id },
    accepts: [200],
    machine,
  });
  context.ledger.acknowledge(key);
  context.journal.act(context.who, 'attach', `${volume.id} to ${machine.id}`);
  if (body.machine_id !== machine.id || body.state !== 'attached') {
    contradict(context, `attach of ${volume.id} to ${machine.id} answered ${JSON.stringify(body)}`);
  }
  volume.machine = machine;
}

/** Detaches a volume. The caller must first wait for the jobs that write to it. */
export async function detachVolume(context: ClientContext, volume: Volume, machine: Machine): Promise<void> {
  const key = `volume.detached ${machine.id} ${volume.id}`;
  context.ledger.allow(key);
  const { body } = await ask<VolumeBody>(context, {
    method: 'POST',
    path: `/v1/volumes/${volume.id}/detach`,
    accepts: [200],
    machine,
    // A repeated detach is refused because the first one was carried out.
    findResult: async ({ status }) => (status === 409 ? readDetached(context, volume) : undefined),
  });
  context.ledger.acknowledge(key);
  context.journal.act(context.who, 'detach', `${volume.id} from ${machine.id}`);
  if (body.machine_id !== null || body.state !== 'available') {
    contradict(context, `detach of ${volume.id} from ${machine.id} answered ${JSON.stringify(body)}`);
  }
  volume.machine = undefined;
}

async function readDetached(context: ClientContext, volume: Volume): Promise<VolumeBody | undefined> {
  const body = await readVolume(context, volume);
  return body.machine_id === null ? body : undefined;
}

async function readVolume(context: ClientContext, { id }: Volume): Promise<VolumeBody> {
  return (await ask<VolumeBody>(context, { method: 'GET', path: `/v1/volumes/${id}`, accepts: [200] })).body;
}

/** Asks the service where each volume is, after a killed VM interrupted an attach or a detach. */
export async function relearnVolumes(context: ClientContext, machine: Machine): Promise<void> {
  for (const volume of context.volumes) {
    const { machine_id } = await readVolume(context, volume);
    if (machine_id === machine.id) volume.machine = machine;
    else if (volume.machine === machine) volume.machine = undefined;
  }
}

export async function deleteVolume(context: ClientContext, volume: Volume): Promise<void> {
  const key = `volume.deleted ${volume.id}`;
  context.ledger.allow(key);
  await deleteById(context, volume.id);
  context.ledger.acknowledge(key);
  context.journal.act(context.who, 'delete a volume', volume.id);
  context.volumes = context.volumes.filter((other) => other !== volume);
}

async function deleteById(context: ClientContext, id: string): Promise<void> {
  await ask(context, {
    method: 'DELETE',
    path: `/v1/volumes/${id}`,
    accepts: [204],
    // A repeated delete is refused because the first one was carried out.
    findResult: async ({ status }) => (status === 404 ? 'deleted' : undefined),
  });
}
