// The attach operation: the host plugs a data volume into its machine and mounts it. When the host refuses, the volume
// is unplugged again. When the host does not answer, it may have attached the volume already, so the attach is
// repeated.

import { ServiceError } from '@sandbar/contract/errors.ts';
import type { MachineVolume } from '@sandbar/contract/host-api.ts';
import type { App } from '../../app.ts';
import type { MachineRow } from '../../db/tables.ts';
import { HostUnavailable } from '../../hosts/client.ts';
import { ensureOnHost, type Wanted } from '../../machines/ensure.ts';
import { noticeEnd } from '../../machines/observe.ts';
import { lockVolume } from '../../volumes/store.ts';
import { act, type Definition, type Work } from '../definition.ts';
import { bumpForUndo } from '../undo.ts';

export const ATTACH: Definition = {
  act: act(
    async (app, work) => {
      const machine = await noticeEnd(app, work);
      if (machine.state === 'error') throw new ServiceError('conflict', 'The machine ended, and is in error.');
      await ensureVolumes(app, machine, { attaching: [mountOf(work)] });
    },
    async ({ tx, steps, operation }) => {
      const volume = await lockVolume(tx, volumeIdOf({ operation }));
      if (!volume) throw new Error('a volume went while it was being attached');
      await steps.changeVolume(volume, {
        machine_id: operation.machine_id,
        mount_path: operation.args.mount_path ?? null,
        state: volume.state === 'error' ? 'error' : 'attached',
      });
    },
  ),
  isRefusal: (error) => !(error instanceof HostUnavailable),
  undo: act(
    async (app, work) => {
      const machine = await noticeEnd(app, { ...work, machine: await bumpForUndo(app, work) });
      if (machine.state !== 'error') await ensureVolumes(app, machine, { detachingId: volumeIdOf(work) });
    },
    async () => undefined,
  ),
};

/**
 * Tells the host which data volumes the machine should have. The machine stays running or stopped, as its row says. If
 * a running machine has ended since the caller asked the host about it, the host does not start it again and this throws
 * `conflict`. Also throws the same errors as `ensureOnHost`.
 */
export async function ensureVolumes(app: App, machine: MachineRow, wanted: Wanted): Promise<void> {
  const isRunning = machine.state === 'running';
  await ensureOnHost(app, machine, isRunning ? 'running' : 'stopped', { ...wanted, onlyIfRunning: isRunning });
}

export function volumeIdOf({ operation }: Pick<Work, 'operation'>): string {
  if (operation.volume_id === null) throw new Error(`The ${operation.kind} ${operation.id} has no volume.`);
  return operation.volume_id;
}

function mountOf({ operation }: Work): MachineVolume {
  const { mount_path } = operation.args;
  if (mount_path === undefined) throw new Error(`The attach ${operation.id} has no mount path.`);
  return { volume_id: volumeIdOf({ operation }), mount_path };
}
