// Keeps what the host agent decides once for its data directory: the host's id and the subnet of its machines.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostAgentConfig } from './config.ts';
import { chooseSubnet } from './network/subnet.ts';
import { readRecord, writeRecord } from './storage/record-file.ts';

export type HostState = { hostId: string; subnet: string };

/**
 * Reads the state, or creates it at the first start. A subnet in the configuration overrides the stored one. Throws
 * `fleet_capacity` when the state cannot be written because the disk is full.
 */
export function loadHostState(config: HostAgentConfig): HostState {
  const path = homePaths(config.home).hostState;
  const kept = readRecord<HostState>(path);
  const subnet = config.subnet ?? kept?.subnet ?? chooseSubnet(config.home, usedAddresses());
  const state = { hostId: kept?.hostId ?? randomUUID(), subnet };
  if (state.subnet !== kept?.subnet) writeRecord(path, state);
  return state;
}

/** Returns the addresses of all interfaces and the targets of all routes. */
function usedAddresses(): string[] {
  const own = Object.values(networkInterfaces()).flatMap((entries) => (entries ?? []).map((entry) => entry.address));
  const routed = readFileSync('/proc/net/route', 'utf8')
    .split('\n')
    .slice(1)
    .map((line) => line.split('\t')[1] ?? '')
    .filter((hex) => /^[0-9A-F]{8}$/.test(hex))
    .map((hex) => [6, 4, 2, 0].map((at) => Number.parseInt(hex.slice(at, at + 2), 16)).join('.'));
  return [...own, ...routed];
}
