// What every part of the control plane is given: one small object instead of globals, so that a test can run two
// replicas in one process and put a fake in any place.
import type { Config } from './config.ts';
import type { Db } from './db/database.ts';
import type { Hosts } from './hosts/hosts.ts';
import type { Log } from './log.ts';

export type App = {
  config: Config;
  db: Db;
  hosts: Hosts;
  log: Log;
  /** Asks for a pass of the reconciler soon; returns at once. */
  reconcileSoon: () => void;
  /** Aborted when the process is told to stop: long waits end early. */
  closing: AbortSignal;
};
