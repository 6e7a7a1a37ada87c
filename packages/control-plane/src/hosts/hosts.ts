// The hosts this replica can reach now. Today that is the one agent on this machine's Unix socket; every caller already
// names the host it means, so more hosts change this file only.
import type { HostInfo } from '@sandbar/contract/host-api.ts';
import { type HostClient, HostUnavailable } from './client.ts';

export type Hosts = {
  /** The client of a host. Throws `host_unavailable` when this replica never reached it. */
  client(hostId: string): HostClient;
  /** Hosts whose event stream is open and in step, by id. */
  connectedIds(): string[];
  /** The agent behind the socket, known or not: for health checks and the listener. */
  local: HostClient;
  /** Remembers who the local agent said it is. */
  recognise(info: HostInfo): void;
  setConnected(hostId: string, connected: boolean): void;
};

/** Makes the registry around the client of the local agent. */
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
      // The socket has one agent behind it: another id means another data directory, and the old host is gone.
      known.clear();
      known.add(info.host_id);
    },
    setConnected: (hostId, isConnected) => {
      if (isConnected) connected.add(hostId);
      else connected.delete(hostId);
    },
  };
}
