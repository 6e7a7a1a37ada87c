// The dependencies that every part of the control plane gets as an argument. There are no globals, so a test can run
// two replicas in one process and replace any dependency by a fake.
import type { CredentialWatch } from './auth/credential-watch.ts';
import type { Config } from './config.ts';
import type { Db } from './db/database.ts';
import type { Hosts } from './hosts/hosts.ts';
import type { Log } from './log.ts';

export type App = {
  config: Config;
  db: Db;
  hosts: Hosts;
  /** Ends open streams whose credential has ended. */
  credentials: CredentialWatch;
  log: Log;
  /** Requests a pass of the reconciler. Returns at once. */
  reconcileSoon: () => void;
  /** Aborted when the process has to stop. Long waits then end early. */
  closing: AbortSignal;
};
