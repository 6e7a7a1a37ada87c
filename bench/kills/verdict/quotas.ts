// Recounts the quota usage from the lists of machines and volumes, and compares it with the counters of the service.
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Quotas } from '@sandbar/contract/quota.ts';
import type { Amounts } from '@sandbar/contract/tier-limits.ts';
import type { Volume } from '@sandbar/contract/volume.ts';
import { ask, type ClientContext } from '../client-context.ts';

/**
 * Returns one sentence for each quota counter that differs from the recount, and for each machine that still has an
 * operation. Call it when all operations should have ended.
 */
export async function checkQuotas(context: ClientContext): Promise<string[]> {
  const get = async <T>(path: string) => (await ask<T>(context, { method: 'GET', path, accepts: [200] })).body;
  const { machines } = await get<{ machines: Machine[] }>('/v1/machines');
  const { volumes } = await get<{ volumes: Volume[] }>('/v1/volumes');
  const { quotas } = await get<Quotas>('/v1/quotas');
  const counted = recount(machines, volumes);
  return [
    ...machines.flatMap(({ id, state, operation }) =>
      operation === null ? [] : [`machine ${id} (${state}) still has an operation: ${JSON.stringify(operation)}`],
    ),
    ...quotas.flatMap(({ name, used }) =>
      used === counted[name] ? [] : [`the quota ${name} says ${used}, and the lists give ${counted[name]}`],
    ),
  ];
}

function recount(machines: readonly Machine[], volumes: readonly Volume[]): Amounts {
  const counting = machines.filter(({ state }) => state !== 'error');
  const sum = (numbers: readonly number[]) => numbers.reduce((total, number) => total + number, 0);
  return {
    machines: counting.length,
    vcpus: sum(counting.map(({ vcpus }) => vcpus)),
    memory_mb: sum(counting.map(({ memory_mb }) => memory_mb)),
    storage_gb: sum([
      ...counting.map(({ rootfs_size_gb }) => rootfs_size_gb),
      ...volumes.map(({ size_gb }) => size_gb),
    ]),
    volumes: volumes.filter(({ kind }) => kind === 'data').length,
  };
}
