// The operator's routes for hosts: they list hosts, set whether a host takes new machines, and remove hosts.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { type HostSummary, RemoveHost } from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { Uuid } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import { sql } from 'kysely';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import { CHANNELS, notify } from '../db/notifications.ts';
import type { HostRow } from '../db/tables.ts';
import { removeHost } from '../hosts/remove.ts';
import { listRemaining } from './host-remaining.ts';

const params = Type.Object({ id: Uuid() });

/** What an operator may say about a host, and the columns that say it. */
export const HOST_CHANGES = {
  cordon: { draining: true },
  uncordon: { draining: false, emptying: false },
  drain: { draining: true, emptying: true },
} as const;
export type HostChange = keyof typeof HOST_CHANGES;

export function addHostRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.get('/admin/hosts', async () => ({ hosts: await describeHosts(app) }));
  for (const change of Object.keys(HOST_CHANGES) as HostChange[]) {
    server.post(`/admin/hosts/:id/${change}`, { schema: { params } }, (request) =>
      changeHost(app, request.params.id, change),
    );
  }
  // The name that `uncordon` had before.
  server.post('/admin/hosts/:id/undrain', { schema: { params } }, (request) =>
    changeHost(app, request.params.id, 'uncordon'),
  );
  server.post('/admin/hosts/:id/remove', { schema: { params, body: RemoveHost } }, (request) =>
    removeAndDescribe(app, request.params.id, request.body),
  );
}

type Counts = { machines: number; volumes: number; snapshots: number };
type Described = HostRow & Counts & { is_reachable: boolean };

/** Returns all hosts, oldest first, also those that were removed. */
export async function describeHosts(app: App): Promise<HostSummary[]> {
  const hosts = await app.db
    .selectFrom('hosts')
    .selectAll()
    .select([
      sql<number>`(select count(*) from machines where host_id = hosts.id and state <> 'destroyed')`.as('machines'),
      sql<number>`(select count(*) from volumes where host_id = hosts.id)`.as('volumes'),
      sql<number>`(select count(*) from snapshots where host_id = hosts.id)`.as('snapshots'),
      sql<boolean>`away_since is null
        and seen_at > now() - ${app.config.timing.hostSeenMs}::int * interval '1 millisecond'`.as('is_reachable'),
    ])
    .orderBy('created_at')
    .orderBy('id')
    .execute();
  return Promise.all(
    hosts.map(async (host) => {
      const isEmptying = host.emptying && host.removed_at === null;
      return isEmptying ? { ...toSummary(host), remaining: await listRemaining(app, host.id) } : toSummary(host);
    }),
  );
}

/**
 * Changes whether a host takes new machines, and whether it is emptied. Running machines stay where they are. Throws
 * `not_found`.
 */
export async function changeHost(app: App, id: string, change: HostChange): Promise<HostSummary> {
  await app.db
    .updateTable('hosts')
    .set(HOST_CHANGES[change])
    .where('id', '=', id)
    .where('removed_at', 'is', null)
    .execute();
  app.hostTable.expire();
  await notify(app.db, CHANNELS.hosts);
  app.reconcileSoon();
  return describeHost(app, id);
}

export async function removeAndDescribe(app: App, id: string, { force = false }: RemoveHost): Promise<HostSummary> {
  await removeHost(app, id, force);
  return describeHost(app, id);
}

async function describeHost(app: App, id: string): Promise<HostSummary> {
  const host = (await describeHosts(app)).find((candidate) => candidate.id === id);
  if (!host) throw new ServiceError('not_found', 'There is no host with this id.');
  return host;
}

function toSummary(host: Described): HostSummary {
  const { id, name, address, draining, version, isolation, cpus, memory_mb, disk_mb } = host;
  const { disk_free_mb, disk_reserve_mb, reserved_vcpus, reserved_memory_mb, reserved_disk_gb } = host;
  return {
    ...{ id, name, address, state: stateOf(host), draining, version, isolation, cpus, memory_mb, disk_mb },
    ...{ disk_free_mb, disk_reserve_mb, reserved_vcpus, reserved_memory_mb, reserved_disk_gb },
    ...{ machines: host.machines, volumes: host.volumes, snapshots: host.snapshots },
    last_seen_at: host.seen_at.toISOString(),
  };
}

function stateOf({ removed_at, is_reachable, draining, emptying }: Described): HostSummary['state'] {
  if (removed_at !== null) return 'removed';
  if (!is_reachable) return 'away';
  if (emptying) return 'draining';
  return draining ? 'cordoned' : 'ready';
}
