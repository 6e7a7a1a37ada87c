// Removes what machines left on the host while no agent runs: QEMU processes, control groups, device nodes, the bridge
// with its taps, and the tables of the packet filter. All of it is found by names that derive from the data directory.
import { homePaths } from '@sandbar/contract/home.ts';
import type { HostState } from './host-state.ts';
import { findQemuBelow, killProcess } from './hypervisor/process.ts';
import { openCgroups } from './jail/cgroup.ts';
import { DeviceNodes, devicesFolder } from './jail/device-nodes.ts';
import { forgetDeparted } from './network/connections.ts';
import { relayPlace } from './network/dns/name-relay.ts';
import { Forwarding, forwardingRecord } from './network/forwarding.ts';
import { networkNames } from './network/names.ts';
import { removeLinks } from './network/ports.ts';
import { withoutTables } from './network/rules.ts';
import { runCommand } from './run-command.ts';
import { readRecord } from './storage/record-file.ts';

/**
 * Ends all VMs of the data directory, without a shutdown of their guests, and removes everything above. Call it only
 * when no agent runs on the data directory. May be repeated. Throws CommandError.
 */
export async function removeHost(home: string, isRoot: boolean): Promise<void> {
  for (const qemu of findQemuBelow(homePaths(home).run)) await killProcess(qemu);
  if (!isRoot) return;
  for (const place of [home, homePaths(home).runGateway, relayPlace(home)]) {
    const cgroups = openCgroups(place);
    for (const name of cgroups.listVmIds()) await cgroups.remove(name);
    cgroups.removeAll();
  }
  new DeviceNodes(devicesFolder(home)).removeAll();
  await removeNetwork(home);
}

async function removeNetwork(home: string): Promise<void> {
  const names = networkNames(home);
  await removeLinks(names);
  new Forwarding(names.bridge, forwardingRecord(home)).restore();
  await runCommand('nft', ['-f', '-'], { input: withoutTables(names.table) });
  const state = readRecord<HostState>(homePaths(home).hostState);
  if (state !== undefined) await forgetDeparted(state.subnet, new Set());
}
