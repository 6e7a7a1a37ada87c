// Operator actions, on a Unix socket that only the owner of the data directory may open: who can connect is the
// credential. No part of the public API.
import { chmod, mkdir, rm } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import { TIERS } from '@sandbar/contract/account.ts';
import { OneOf, Uuid } from '@sandbar/contract/fields.ts';
import fastify, { type FastifyBaseLogger, type FastifyInstance, LogController } from 'fastify';
import { Type } from 'typebox';
import { bootstrapAccount } from '../accounts/bootstrap.ts';
import { checkAccount, insertAccount } from '../accounts/store.ts';
import { insertKey } from '../api-keys/store.ts';
import type { App } from '../app.ts';
import { KEY_SCOPES } from '../db/tables.ts';
import { sendError } from '../http/errors.ts';
import { stopAllMachines } from './stop-all.ts';

const strict = { additionalProperties: false };
const Email = Type.String({ minLength: 3, maxLength: 254, pattern: '^[^@\\s]+@[^@\\s]+$' });
const Bootstrap = Type.Object({ email: Email }, strict);
const NewKey = Type.Object(
  { account_id: Uuid(), scope: OneOf(KEY_SCOPES), name: Type.String({ maxLength: 255 }) },
  strict,
);
const NewAccount = Type.Object({ email: Email, tier: Type.Optional(OneOf(TIERS)) }, strict);
const Nothing = Type.Object({}, strict);

/** Builds the operator's server; `listenAdmin` makes it reachable. */
export function buildAdminServer(app: App): FastifyInstance {
  const untyped = fastify({
    loggerInstance: app.log as FastifyBaseLogger,
    logController: new LogController({ disableRequestLogging: true }),
    ajv: { customOptions: { coerceTypes: false, removeAdditional: false, verbose: true, strict: false } },
  });
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  server.setErrorHandler(sendError);

  server.post('/admin/bootstrap', { schema: { body: Bootstrap } }, ({ body }) => bootstrapAccount(app.db, body.email));

  server.post('/admin/accounts', { schema: { body: NewAccount } }, ({ body }) =>
    app.db.transaction().execute(async (tx) => {
      const accountId = await insertAccount(tx, { email: body.email, tier: body.tier ?? 'free' });
      return { account_id: accountId, api_key: await insertKey(tx, accountId, 'full', 'first key') };
    }),
  );

  server.post('/admin/api-keys', { schema: { body: NewKey } }, async ({ body }) => {
    await checkAccount(app.db, body.account_id);
    return { api_key: await insertKey(app.db, body.account_id, body.scope, body.name) };
  });

  server.post('/admin/machines/stop-all', { schema: { body: Nothing } }, () => stopAllMachines(app));
  return untyped;
}

/** Listens on the socket, mode 0600. A socket that an earlier process left is replaced. */
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
