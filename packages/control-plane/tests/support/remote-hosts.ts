// Fake hosts on other computers. Their addresses are names, and each name stands for a Unix socket of the test.
import { join } from 'node:path';
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import type { Db } from '../../src/db/database.ts';
import { CHANNELS, notify } from '../../src/db/notifications.ts';
import type { RemoteHost } from '../../src/hosts/hosts.ts';
import { registerHost } from '../../src/hosts/store.ts';
import { FakeHost } from './fake-host.ts';

export const socketOfRemote = (root: string, { address }: RemoteHost): string =>
  join(root, `${address.split(':')[0]}.sock`);

/** Starts a host and adds it to the fleet. Each `index` has a name, an address and a subnet of its own. */
export async function addRemoteHost(db: Db, root: string, index: number, info: Partial<HostInfo>): Promise<FakeHost> {
  const name = `remote-${index + 1}`;
  const address = `${name}:7072`;
  const id = `019b0000-0000-7000-8000-0000000001${String(index).padStart(2, '0')}`;
  const own = { host_id: id, subnet: `10.84.${index}.0/24` };
  const host = new FakeHost(socketOfRemote(root, { id, address }), { ...own, ...info });
  await host.listen();
  await registerHost(db, host.info);
  await db.updateTable('hosts').set({ name, address }).where('id', '=', id).execute();
  await notify(db, CHANNELS.hosts);
  await notify(db, CHANNELS.leases);
  return host;
}
