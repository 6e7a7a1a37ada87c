// The operator's routes for hosts: they list hosts, and set whether a host takes new machines.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import type { HostSummary } from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { Uuid } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import { sql } from 'kysely';
import { Type } from 'typebox';
import type { App } from '../app.ts';
import type { HostRow } from '../db/tables.ts';
import { listHosts } from '../hosts/store.ts';

const params = Type.Object({ id: Uuid() });

export function addHostRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.get('/admin/hosts', async () => ({ hosts: await describeHosts(app) }));
  server.post('/admin/hosts/:id/drain', { schema: { params } }, (request) => setDraining(app, request.params.id, true));
  server.post('/admin/hosts/:id/undrain', { schema: { params } }, (request) =>
    setDraining(app, request.params.id, false),
  );
}

export async function describeHosts(app: App): Promise<HostSummary[]> {
  const hosts = await listHosts(app.db);
  const counts = await app.db
    .selectFrom('machines')
    .select(['host_id', sql<number>`count(*)`.as('machines')])
    .where('state', '<>', 'destroyed')
    .groupBy('host_id')
    .execute();
  const machinesOf = new Map(counts.map((row) => [row.host_id, row.machines]));
  const connected = new Set(app.hosts.connectedIds());
  return hosts.map((host) => toSummary(host, machinesOf.get(host.id) ?? 0, connected.has(host.id)));
}

/** Sets whether the host takes new machines. The machines that it has are not affected. */
export async function setDraining(app: App, id: string, draining: boolean): Promise<HostSummary> {
  const result = await app.db.updateTable('hosts').set({ draining }).where('id', '=', id).executeTakeFirst();
  const host = (await describeHosts(app)).find((candidate) => candidate.id === id);
  if (result.numUpdatedRows === 0n || !host) throw new ServiceError('not_found', 'There is no host with this id.');
  return host;
}

function toSummary(host: HostRow, machines: number, isConnected: boolean): HostSummary {
  const { id, draining, version, isolation, cpus, memory_mb, disk_mb, disk_free_mb, disk_reserve_mb } = host;
  const { reserved_vcpus, reserved_memory_mb, reserved_disk_gb } = host;
  // The row has only the time of the agent's last greeting. A connected host counts as seen now.
  const seenAt = isConnected ? new Date() : host.seen_at;
  const state = !isConnected ? 'away' : draining ? 'draining' : 'ready';
  return {
    ...{ id, state, draining, version, isolation, cpus, memory_mb, disk_mb, disk_free_mb, disk_reserve_mb },
    ...{ reserved_vcpus, reserved_memory_mb, reserved_disk_gb, machines },
    last_seen_at: seenAt.toISOString(),
  };
}
