// The server of the operator's commands, on a Unix socket that only the owner of the data directory may open. It asks
// for no credential, because whoever can connect is the operator. Its routes are not part of the public API.
import { chmod, mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { AdminEmail } from '@sandbar/contract/admin.ts';
import { KEY_SCOPES } from '@sandbar/contract/api-key.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { OneOf, Uuid } from '@sandbar/contract/fields.ts';
import fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { Type } from 'typebox';
import { bootstrapAccount } from '../accounts/bootstrap.ts';
import { checkAccount } from '../accounts/store.ts';
import { insertKey } from '../api-keys/store.ts';
import type { App } from '../app.ts';
import { sendError } from '../http/errors.ts';
import { addAccountMoneyRoutes } from './account-money.ts';
import { addAccountStatusRoutes } from './account-status.ts';
import { addAccountRoutes } from './accounts.ts';
import { addAuditRoutes } from './audit.ts';
import { addFleetAdminRoutes } from './fleet.ts';
import { addHostRoutes } from './hosts.ts';
import { addPriceRoutes } from './prices.ts';
import { stopAllMachines } from './stop-all.ts';

/** Enough for an e-mail address in which every character is percent-escaped. */
const MAX_PARAM_LENGTH = 1024;
const strict = { additionalProperties: false };
const Bootstrap = Type.Object({ email: AdminEmail }, strict);
const NewKey = Type.Object(
  { account_id: Uuid(), scope: OneOf(KEY_SCOPES), name: Type.String({ maxLength: 255 }) },
  strict,
);
const Nothing = Type.Object({}, strict);

/** Builds the operator's server. It listens only after `listenAdmin`. */
export function buildAdminServer(app: App): FastifyInstance {
  const untyped = fastify({
    loggerInstance: app.log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    routerOptions: { maxParamLength: MAX_PARAM_LENGTH },
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, verbose: true, strict: false } },
  });
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.setErrorHandler(sendError);
  server.setNotFoundHandler(() => {
    throw new ServiceError('not_found', 'There is no such operator action.');
  });

  server.post('/admin/bootstrap', { schema: { body: Bootstrap } }, ({ body }) => bootstrapAccount(app.db, body.email));

  server.post('/admin/api-keys', { schema: { body: NewKey } }, async ({ body }) => {
    await checkAccount(app.db, body.account_id);
    return { api_key: await insertKey(app.db, body.account_id, body.scope, body.name) };
  });

  addAccountRoutes(untyped, app);
  addAccountStatusRoutes(untyped, app);
  addAccountMoneyRoutes(untyped, app);
  addPriceRoutes(untyped, app);
  addHostRoutes(untyped, app);
  addFleetAdminRoutes(untyped, app);
  addAuditRoutes(untyped, app);
  server.post('/admin/machines/stop-all', { schema: { body: Nothing } }, () => stopAllMachines(app));
  return untyped;
}

/** Listens on the socket, which has mode 0600. A socket file that an earlier process left behind is replaced. */
export async function listenAdmin(server: FastifyInstance, socketPath: string): Promise<void> {
  await mkdir(dirname(socketPath), { recursive: true, mode: 0o700 });
  await rm(socketPath, { force: true });
  const umask = process.umask(0o177);
  try {
    await server.listen({ path: socketPath });
  } finally {
    process.umask(umask);
  }
  await chmod(socketPath, 0o600);
}
