// The operation that deletes a copy which a move has left on a host, and then releases the room of the copy. It is
// repeated until it succeeds. A copy of a later generation stays: the object has come back meanwhile.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../../app.ts';
import type { HostCopy } from '../../db/tables.ts';
import { NO_ROOM } from '../../hosts/room.ts';
import { reserveRoom } from '../../hosts/store.ts';
import { act, type Definition, type Work } from '../definition.ts';

export const REMOVE_COPY: Definition = {
  act: act(
    (app, { operation }) => remove(app, operation.host_id, copyOf(operation)),
    async ({ app, tx, operation }) => {
      const room = { ...NO_ROOM, diskGb: -copyOf(operation).disk_gb };
      await reserveRoom(tx, operation.host_id, room, app.config.overcommit, false);
    },
  ),
};

async function remove(app: App, hostId: string, { kind, id, generation }: HostCopy): Promise<void> {
  const client = app.hosts.client(hostId);
  if (kind === 'volume') {
    await client.deleteVolume(id, generation);
    return;
  }
  await client.deleteMachine(id, generation).catch((error: unknown) => {
    const hasComeBack = error instanceof ServiceError && error.code === 'conflict';
    if (!hasComeBack) throw error;
  });
}

function copyOf({ id, args }: Work['operation']): HostCopy {
  const [copy] = args.copies ?? [];
  if (!copy) throw new Error(`The operation ${id} has no copy to remove.`);
  return copy;
}
