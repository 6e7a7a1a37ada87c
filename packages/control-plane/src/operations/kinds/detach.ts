// The detach operation: the host unmounts a data volume and unplugs it from its machine. When the host refuses (for
// example because the mount is busy), the host mounts the volume again. A machine in state `error` has no VM, so only
// the volume's row changes.

import type { App } from '../../app.ts';
import type { MachineRow } from '../../db/tables.ts';
import { HostUnavailable } from '../../hosts/client.ts';
import { noticeEnd } from '../../machines/observe.ts';
import { freed, lockVolume } from '../../volumes/store.ts';
import { act, type Definition } from '../definition.ts';
import { bumpForUndo } from '../undo.ts';
import { ensureVolumes, volumeIdOf } from './attach.ts';

export const DETACH: Definition = {
  act: act(
    async (app, work) => {
      const machine = await noticeEnd(app, work);
      await ensureUnlessError(app, machine, { detachingId: volumeIdOf(work) });
    },
    async ({ tx, steps, operation }) => {
      const volume = await lockVolume(tx, volumeIdOf({ operation }));
      if (!volume) throw new Error('a volume went while it was being detached');
      await steps.changeVolume(volume, freed(volume));
    },
  ),
  isRefusal: (error) => !(error instanceof HostUnavailable),
  undo: act(
    async (app, work) => {
      const machine = await noticeEnd(app, { ...work, machine: await bumpForUndo(app, work) });
      await ensureUnlessError(app, machine, {});
    },
    async () => undefined,
  ),
};

async function ensureUnlessError(app: App, machine: MachineRow, wanted: { detachingId?: string }): Promise<void> {
  if (machine.state !== 'error') await ensureVolumes(app, machine, wanted);
}
