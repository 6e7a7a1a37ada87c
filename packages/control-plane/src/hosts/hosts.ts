// The hosts that this replica can reach. At present there is one: the agent that listens on this machine's Unix socket.
// All callers already pass a host id, so support for more hosts would change this file only.
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { type HostClient, HostUnavailable } from './client.ts';

export type Hosts = {
  /**
   * Returns the client of a host. Throws `host_unavailable` if this replica has not connected to the host since it
   * started.
   */
  client(hostId: string): HostClient;
  /** Ids of the connected hosts: their event stream is open and has sent the initial state. */
  connectedIds(): string[];
  /** The client of the local agent, even before its host id is known. For health checks and the event listener. */
  local: HostClient;
  /** Stores the host id that the local agent reported. */
  recognise(info: HostInfo): void;
  setConnected(hostId: string, connected: boolean): void;
};

/**
 * Creates the list of reachable hosts. It contains only the host of the local agent, once that agent has reported its
 * id.
 */
export function createHosts(local: HostClient): Hosts {
  const known = new Set<string>();
  const connected = new Set<string>();
  return {
    client: (hostId) => {
      if (!known.has(hostId)) throw new HostUnavailable(false);
      return local;
    },
    connectedIds: () => [...connected],
    local,
    recognise: (info) => {
      // There is only one agent at the socket. If it reports a new id, it uses another data directory, and the previous
      // host no longer exists.
      known.clear();
      known.add(info.host_id);
    },
    setConnected: (hostId, isConnected) => {
      if (isConnected) connected.add(hostId);
      else connected.delete(hostId);
    },
  };
}
