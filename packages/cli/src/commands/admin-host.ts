// `sandbar admin host`: the machines that machines run on.
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { callAdmin } from '../admin-socket.ts';
import { printJson, readArguments } from '../command.ts';
import { formatTable } from '../table.ts';
import { UsageError } from '../usage-error.ts';
import type { Action } from './admin.ts';

export const HOST_HELP = `  host list           what there is, and how full it is
  host drain ID       sends no new machines there; those that are there stay. undrain takes it back
  host token          what another host joins with: not possible yet`;

const JSON_OPTION = { json: { type: 'boolean', default: false } } as const;

async function list(args: readonly string[]): Promise<number> {
  const { values, positionals } = readArguments(args, JSON_OPTION);
  if (positionals.length > 0) throw new UsageError('sandbar admin host list takes no arguments');
  const { hosts } = await callAdmin<{ hosts: HostSummary[] }>('/admin/hosts');
  if (values.json) printJson(hosts);
  else printHosts(hosts);
  return 0;
}

const setDraining =
  (name: 'drain' | 'undrain'): Action =>
  async (args) => {
    const { values, positionals } = readArguments(args, JSON_OPTION);
    const [id, ...more] = positionals;
    if (id === undefined || more.length > 0) throw new UsageError(`which host? sandbar admin host ${name} ID`);
    const host = await callAdmin<HostSummary>(`/admin/hosts/${encodeURIComponent(id)}/${name}`, {});
    if (values.json) printJson(host);
    else printHosts([host]);
    return 0;
  };

async function token(): Promise<number> {
  console.error('sandbar: another host cannot join this service yet; it runs machines on the host of npm start only');
  return 1;
}

function printHosts(hosts: readonly HostSummary[]): void {
  if (hosts.length === 0) {
    console.log('No hosts.');
    return;
  }
  const rows = hosts.map((host) => [
    host.id,
    host.draining && host.state === 'away' ? 'away, draining' : host.state,
    host.version,
    host.isolation,
    `${host.cpus}`,
    `${host.memory_mb}`,
    `${host.reserved_memory_mb}`,
    `${host.machines}`,
    host.last_seen_at,
  ]);
  const headings = ['ID', 'STATE', 'VERSION', 'ISOLATION', 'CPUS', 'MEMORY MB', 'RESERVED MB', 'MACHINES', 'LAST SEEN'];
  console.log(formatTable(headings, rows));
}

export const HOST_ACTIONS: Record<string, Action> = {
  list,
  drain: setDraining('drain'),
  undrain: setDraining('undrain'),
  token,
};
