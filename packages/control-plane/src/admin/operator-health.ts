// The routes for the health of the service on the operator's pages of the dashboard. They change nothing.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { Audit, FAILED_OPERATIONS_MAX, FailedOperationList } from '@sandbar/contract/admin.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { audit } from '../audit/audit.ts';
import { exampleAudit, exampleFailedOperation } from './examples.ts';
import { listFailedOperations } from './failed-operations.ts';
import { OPERATOR } from './operator-access.ts';

const tags = ['Operator'];

export function addOperatorHealthRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  // An audit reads all machines, meters and ledger entries, so requests that come while one runs share its result.
  let running: Promise<Audit> | undefined;
  const auditOnce = (): Promise<Audit> => {
    running ??= audit(app).finally(() => {
      running = undefined;
    });
    return running;
  };

  server.route({
    method: 'GET',
    url: '/admin/v1/audit',
    schema: {
      operationId: 'auditService',
      summary: 'Audit the service',
      description:
        'Compares database, hosts, quotas, ledger and meters, as `sandbar doctor` does, and repairs nothing. This takes ' +
        'seconds, and minutes when a host does not answer.',
      tags,
      response: { 200: Audit },
    },
    config: { ...OPERATOR, examples: { response: exampleAudit } },
    handler: auditOnce,
  });

  server.route({
    method: 'GET',
    url: '/admin/v1/failed-operations',
    schema: {
      operationId: 'listFailedOperations',
      summary: 'List failed operations',
      description:
        'Operations of all accounts that the service gave up in the last hour, or that it tries again after a failure; ' +
        `newest first, at most ${FAILED_OPERATIONS_MAX}.`,
      tags,
      response: { 200: FailedOperationList },
    },
    config: { ...OPERATOR, examples: { response: { operations: [exampleFailedOperation] } } },
    handler: async () => ({ operations: await listFailedOperations(app.db) }),
  });
}
