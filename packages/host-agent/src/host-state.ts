// Keeps what the host agent decides once for its data directory: the host's id and the subnet of its machines.
import { randomUUID } from 'node:crypto';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostAgentConfig } from './config.ts';
import { readHostRoutes } from './network/host-routes.ts';
import { chooseSubnet } from './network/subnet.ts';
import { readRecord, writeRecord } from './storage/record-file.ts';

export type HostState = { hostId: string; subnet: string };

/**
 * Reads the state, or creates it at the first start. A subnet in the configuration overrides the stored one. Throws
 * `fleet_capacity` when the state cannot be written because the disk is full.
 */
export function loadHostState(config: Pick<HostAgentConfig, 'home' | 'subnet'>): HostState {
  const path = homePaths(config.home).hostState;
  const kept = readRecord<HostState>(path);
  const subnet = config.subnet ?? kept?.subnet ?? chooseSubnet(config.home, readHostRoutes().used);
  const state = { hostId: kept?.hostId ?? randomUUID(), subnet };
  if (state.subnet !== kept?.subnet) writeRecord(path, state);
  return state;
}
