// What the host agent decided once for this data directory and keeps: its id and its subnet.

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostAgentConfig } from './config.ts';
import { chooseSubnet } from './network/subnet.ts';
import { readRecord, writeRecord } from './storage/record-file.ts';

export type HostState = { hostId: string; subnet: string };

/** Reads the state, or makes it at the first start. A configured subnet wins over the one that was kept. */
export function loadHostState(config: HostAgentConfig): HostState {
  const path = homePaths(config.home).hostState;
  const kept = readRecord<HostState>(path);
  const subnet = config.subnet ?? kept?.subnet ?? chooseSubnet(config.home, usedAddresses());
  const state = { hostId: kept?.hostId ?? randomUUID(), subnet };
  if (state.subnet !== kept?.subnet) writeRecord(path, state);
  return state;
}

/** Addresses of the interfaces, and the targets of the routes. */
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
