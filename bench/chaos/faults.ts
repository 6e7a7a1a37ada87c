// Which code makes each kind of fault.
import type { Fault } from './fault.ts';
import { stepClock } from './faults/clock-step.ts';
import { fillDisk } from './faults/full-disk.ts';
import { killAgent, killControlPlane, killPostgres, killVm } from './faults/kills.ts';
import { cutNetwork, slowNetwork } from './faults/network.ts';
import type { FaultKind } from './plan.ts';

export const FAULTS: Record<FaultKind, Fault> = {
  'host-agent': killAgent,
  'control-plane': killControlPlane,
  vm: killVm,
  postgres: killPostgres,
  'full disk': fillDisk,
  'cut network': cutNetwork,
  'slow network': slowNetwork,
  'clock step': stepClock,
};
