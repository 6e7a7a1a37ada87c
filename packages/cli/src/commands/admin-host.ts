// `sandbar admin host`: the hosts that machines run on.
import type { Command } from '@commander-js/extra-typings';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { callAdmin } from '../admin-socket.ts';
import { parseId } from '../arguments.ts';
import { printJson, printNotice, printRows } from '../print.ts';
import { defineHostTokens } from './admin-host-token.ts';

/** `alias`: the name that the action had before. */
const ACTIONS: readonly { name: string; description: string; alias?: string }[] = [
  { name: 'cordon', description: 'gives a host no new machines; those that are there stay' },
  { name: 'uncordon', description: 'gives a host new machines again', alias: 'undrain' },
  {
    name: 'drain',
    description: 'moves stopped machines and detached volumes to other hosts, and says what is still there',
  },
];

export function defineHost(command: Command): void {
  command
    .command('list')
    .alias('ls')
    .description('lists the hosts; of vCPUs, memory and disk it shows what is promised and what there is')
    .option('--json', 'print the answer as JSON')
    .action(async ({ json }) => {
      const answer = await callAdmin<{ hosts: HostSummary[] }>('/admin/hosts');
      if (json) printJson(answer);
      else printHosts(answer.hosts);
    });
  for (const { name, description, alias } of ACTIONS) {
    const action = command
      .command(name)
      .description(description)
      .argument('<host>', 'the host', parseId)
      .option('--json', 'print the answer as JSON')
      .action(async (id, { json }) => {
        const host = await callAdmin<HostSummary>(`/admin/hosts/${encodeURIComponent(id)}/${name}`, {});
        if (json) printJson(host);
        else printHosts([host]);
        if (!json && name === 'drain') printRemaining(host);
      });
    if (alias !== undefined) action.alias(alias);
  }
  command
    .command('remove')
    .description('removes a host from the service, for good')
    .argument('<host>', 'the host', parseId)
    .option('--force', 'give up the machines, volumes and snapshots that are still there: they are lost')
    .option('--json', 'print the answer as JSON')
    .action(async (id, { force, json }) => {
      const path = `/admin/hosts/${encodeURIComponent(id)}/remove`;
      const host = await callAdmin<HostSummary>(path, force ? { force } : {});
      if (json) printJson(host);
      else printHosts([host]);
    });
  defineHostTokens(command);
}

function printHosts(hosts: readonly HostSummary[]): void {
  const rows = hosts.map((host) => [
    host.id,
    host.name === '' ? '-' : host.name,
    host.address ?? 'local',
    host.draining && host.state === 'away' ? 'away, cordoned' : host.state,
    host.version,
    host.isolation,
    `${host.reserved_vcpus}/${host.cpus}`,
    `${host.reserved_memory_mb}/${host.memory_mb}`,
    `${host.reserved_disk_gb}/${gibOf(host.disk_mb)}`,
    `${gibOf(host.disk_free_mb)}`,
    `${host.machines}`,
    host.last_seen_at,
  ]);
  const sizes = ['VCPUS', 'MEMORY MB', 'DISK GB', 'FREE GB', 'MACHINES'];
  printRows(['ID', 'NAME', 'ADDRESS', 'STATE', 'VERSION', 'ISOLATION', ...sizes, 'LAST SEEN'], rows, 'No hosts.');
}

function printRemaining({ machines, volumes, snapshots, remaining = [] }: HostSummary): void {
  if (machines + volumes + snapshots === 0) {
    printNotice('the host is empty and can be removed');
    return;
  }
  printNotice(`still on the host: machines ${machines}, volumes ${volumes}, snapshots ${snapshots}`);
  for (const { kind, id, why } of remaining) printNotice(`${kind} ${id}: ${why}`);
  printNotice('what can move goes on moving in the background; run the command again to see what is left');
}

const gibOf = (mib: number) => Math.floor(mib / 1024);
