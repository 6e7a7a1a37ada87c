// Where the agent of a host is reached, and how.
import type { SecureContext } from 'node:tls';

/** The agent of this computer, on its Unix socket. */
export type LocalTarget = { socketPath: string };

/** The agent of a host that has joined, over TLS. `host` is private: no client may see it. */
export type JoinedTarget = {
  host: string;
  port: number;
  hostId: string;
  /** The certificate of the control plane and the authorities that it trusts, for a new connection. */
  tls: () => Promise<SecureContext>;
};

export type HostTarget = LocalTarget | JoinedTarget;
