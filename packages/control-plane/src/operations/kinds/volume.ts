// Two operations: create a data volume, and delete a volume (a data volume or a kept root disk). A create that fails or
// is interrupted is undone. A delete is repeated until it succeeds.

import { lockVolume } from '../../volumes/store.ts';
import { act, type Definition } from '../definition.ts';
import { volumeIdOf } from './attach.ts';

const REMOVE = act(
  (app, work) => app.hosts.client(work.operation.host_id).deleteVolume(volumeIdOf(work)),
  async ({ tx, steps, operation }) => {
    const volume = await lockVolume(tx, volumeIdOf({ operation }));
    if (volume) await steps.removeVolume(volume);
  },
);

export const CREATE_VOLUME: Definition = {
  act: act(
    async (app, work) => {
      const query = app.db.selectFrom('volumes').select('size_gb').where('id', '=', volumeIdOf(work));
      const { size_gb } = await query.executeTakeFirstOrThrow();
      await app.hosts.client(work.operation.host_id).ensureVolume(volumeIdOf(work), size_gb);
    },
    async ({ tx, steps, operation }) => {
      const volume = await lockVolume(tx, volumeIdOf({ operation }));
      if (volume) await steps.changeVolume(volume, { state: 'available' });
    },
  ),
  undo: REMOVE,
  afterCrash: 'undo',
};

export const DELETE_VOLUME: Definition = { act: REMOVE };
