// The HTTP endpoint of quotas.
import { QUOTA_DESCRIPTIONS, QUOTA_DIMENSIONS, Quotas } from '@sandbar/contract/quota.ts';
import type { FastifyInstance } from 'fastify';
import { getAccount } from '../accounts/store.ts';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { currentUse, effectiveLimits } from './limits.ts';

export function addQuotaRoutes(server: FastifyInstance, app: App): void {
  server.route({
    method: 'GET',
    url: '/v1/quotas',
    schema: {
      operationId: 'getQuotas',
      summary: 'Get the quotas',
      description: 'What the account uses and may use, in five dimensions. A request must fit all of them.',
      tags: ['Account'],
      response: { 200: Quotas },
    },
    config: { access: 'read', examples: { response: exampleQuotas() } },
    handler: async (request) => readQuotas(app, callerOf(request).accountId),
  });
}

async function readQuotas(app: App, accountId: string): Promise<Quotas> {
  const account = await getAccount(app.db, accountId);
  const [limits, used] = [effectiveLimits(account), currentUse(account)];
  return {
    tier: account.tier,
    quotas: QUOTA_DIMENSIONS.map((name) => ({
      name,
      used: used[name],
      limit: limits[name],
      description: QUOTA_DESCRIPTIONS[name],
    })),
  };
}

function exampleQuotas(): Quotas {
  const machines = { name: 'machines', used: 1, limit: 3, description: QUOTA_DESCRIPTIONS.machines } as const;
  return { tier: 'free', quotas: [machines] };
}
