// How this replica reaches the hosts of the fleet.
import type { Config } from '../config.ts';
import type { Db } from '../db/database.ts';
import type { HostRow } from '../db/tables.ts';
import type { HostTarget } from '../hosts/target.ts';
import { parseAddress } from './address.ts';
import { ControlPlaneIdentity } from './identity.ts';

export type Fleet = {
  /** Where the agent of a host is reached. A host that joined again may have another address. */
  targetOf(host: Pick<HostRow, 'id' | 'address'>): HostTarget;
};

/** Does nothing until a connection to a joined host is opened. */
export function createFleet({ hostAgentSocket, secret }: Pick<Config, 'hostAgentSocket' | 'secret'>, db: Db): Fleet {
  const identity = new ControlPlaneIdentity(db, secret);
  const tls = () => identity.context();
  return {
    targetOf: ({ id, address }) =>
      address === null ? { socketPath: hostAgentSocket } : { ...parseAddress(address), hostId: id, tls },
  };
}
