// `sandbar admin host`: the hosts that machines run on.
import type { Command } from '@commander-js/extra-typings';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { callAdmin } from '../admin-socket.ts';
import { parseId } from '../arguments.ts';
import { printJson, printLine, printNotice, printTable } from '../print.ts';

const DESCRIPTIONS = {
  drain: 'gives a host no new machines; those that are there stay',
  undrain: 'gives a drained host new machines again',
};

export function defineHost(command: Command): void {
  command
    .command('list')
    .description('lists the hosts; of vCPUs, memory and disk it shows what is promised and what there is')
    .option('--json', 'print the answer as JSON')
    .action(async ({ json }) => {
      const answer = await callAdmin<{ hosts: HostSummary[] }>('/admin/hosts');
      if (json) printJson(answer);
      else printHosts(answer.hosts);
    });
  for (const action of ['drain', 'undrain'] as const) {
    command
      .command(action)
      .description(DESCRIPTIONS[action])
      .argument('<host>', 'the host', parseId)
      .option('--json', 'print the answer as JSON')
      .action(async (id, { json }) => {
        const host = await callAdmin<HostSummary>(`/admin/hosts/${encodeURIComponent(id)}/${action}`, {});
        if (json) printJson(host);
        else printHosts([host]);
      });
  }
  command
    .command('token')
    .description('makes a token with which another host joins: not possible yet')
    .action(() => {
      printNotice('another host cannot join this service yet; it runs machines on the host of npm start only');
      process.exitCode = 1;
    });
}

function printHosts(hosts: readonly HostSummary[]): void {
  if (hosts.length === 0) {
    printLine('No hosts.');
    return;
  }
  const rows = hosts.map((host) => [
    host.id,
    host.draining && host.state === 'away' ? 'away, draining' : host.state,
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
  printTable(['ID', 'STATE', 'VERSION', 'ISOLATION', ...sizes, 'LAST SEEN'], rows);
}

const gibOf = (mib: number) => Math.floor(mib / 1024);
