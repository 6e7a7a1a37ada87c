// The HTTP endpoint of quotas.
import { QUOTA_DESCRIPTIONS, Quotas } from '@sandbar/contract/quota.ts';
import { QUOTA_DIMENSIONS } from '@sandbar/contract/tier-limits.ts';
import type { FastifyInstance } from 'fastify';
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { accountBounds, hostBounds, largestMachine } from '../machines/size-bounds.ts';
import { currentUse, effectiveLimits } from './limits.ts';

export function addQuotaRoutes(server: FastifyInstance, app: App): void {
  server.route({
    method: 'GET',
    url: '/v1/quotas',
    schema: {
      operationId: 'getQuotas',
      summary: 'Get the quotas',
      description:
        'What the account uses and may use, in five dimensions, and how large one machine may be. A request must fit all of them.',
      tags: ['Account'],
      response: { 200: Quotas },
    },
    config: { access: 'read', examples: { response: exampleQuotas() } },
    handler: async (request) => readQuotas(app, callerOf(request).accountId),
  });
}

async function readQuotas(app: App, accountId: string): Promise<Quotas> {
  const [account, hosts] = await Promise.all([getAccount(app.db, accountId), app.hostTable.read()]);
  const [limits, used] = [effectiveLimits(account), currentUse(account)];
  return {
    tier: account.tier,
    quotas: QUOTA_DIMENSIONS.map((name) => ({
      name,
      used: used[name],
      limit: limits[name],
      description: QUOTA_DESCRIPTIONS[name],
    })),
    largest_machine: largestMachine([...accountBounds(limits), ...hostBounds(hosts, app.config.overcommit)]),
  };
}

function exampleQuotas(): Quotas {
  const machines = { name: 'machines', used: 1, limit: 3, description: QUOTA_DESCRIPTIONS.machines } as const;
  return {
    tier: 'free',
    quotas: [machines],
    largest_machine: { vcpus: 2, memory_mb: 2048, rootfs_size_gb: 1024 },
  };
}
