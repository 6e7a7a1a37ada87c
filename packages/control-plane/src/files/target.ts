// What every use case of files needs to know: who asks, which machine, and which path in it.
import type { Caller } from '../http/route-config.ts';

export type FileTarget = {
  caller: Caller;
  machineId: string;
  /** Percent-encoded, as the guest agent takes it. */
  path: string;
};
