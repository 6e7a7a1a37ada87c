// Two machines on one bridge, and the settings of a bridge that limits nothing, for tests of the network.
import { createLog } from '@sandbar/logging/log.ts';
import type { BridgeOptions } from '../../src/network/bridge-network.ts';

export const SUBNET = '10.123.0.0/16';
export const GATEWAY = '10.123.0.1';
export const [A, B] = ['00000000000a', '00000000000b'];
export const [IP_A, IP_B] = ['10.123.0.10', '10.123.0.11'];
export const OPEN: BridgeOptions = {
  assigned: new Map(),
  allow: [],
  rateMbit: undefined,
  connections: 4096,
  log: createLog({ process: 'test', level: 'silent' }),
};
