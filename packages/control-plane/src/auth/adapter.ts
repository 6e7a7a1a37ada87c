// The layer between better-auth and the database, which keeps secrets out of the tables. It replaces the token of a
// session by its hash when a session is written and when a session is looked up. It drops the tokens of an OpenID
// provider, because the service does not use them.
import type { BetterAuthOptions } from 'better-auth';
import type { Db } from '../db/database.ts';
import { hashToken } from './cookie.ts';

type Adapter = Awaited<ReturnType<typeof import('better-auth/db/adapter')['getAdapter']>>;
type Row = Record<string, unknown>;
type Where = { field: string; value: unknown };
type Call = { model: string; data?: Row; update?: Row; where?: Where[] };

const PROVIDER_TOKENS = ['accessToken', 'refreshToken', 'idToken', 'accessTokenExpiresAt', 'refreshTokenExpiresAt'];
const METHODS = [
  ...['create', 'update', 'updateMany', 'findOne', 'findMany', 'count', 'delete', 'deleteMany'],
  ...['consumeOne', 'incrementOne'],
];

/** Makes better-auth's database adapter for our database, with this layer around it. */
export async function createAdapter(db: Db, options: BetterAuthOptions): Promise<Adapter> {
  const { getAdapter } = await import('better-auth/db/adapter');
  return guard(await getAdapter({ ...options, database: { db, type: 'postgres', transaction: true } }));
}

function guard<T extends object>(adapter: T): T {
  const source = adapter as Record<string, unknown>;
  const guarded: Record<string, unknown> = { ...source };
  for (const name of METHODS) {
    const method = source[name];
    if (typeof method === 'function') guarded[name] = (call: Call) => guardCall(method.bind(adapter), call);
  }
  const { transaction } = source;
  if (typeof transaction === 'function') {
    guarded.transaction = (work: (inner: object) => unknown) =>
      transaction.call(adapter, (inner: object) => work(guard(inner)));
  }
  return guarded as T;
}

async function guardCall(method: (call: Call) => Promise<unknown>, call: Call): Promise<unknown> {
  if (call.model === 'account') return method(mapWritten(call, withoutTokens));
  if (call.model !== 'session') return method(call);
  const tokens = new Map<unknown, string>();
  const hide = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(hide);
    if (typeof value !== 'string') return value;
    const hash = hashToken(value);
    tokens.set(hash, value);
    return hash;
  };
  const hidden = mapWritten(call, (row) => ('token' in row ? { ...row, token: hide(row.token) } : row));
  const where = call.where?.map((term) => (term.field === 'token' ? { ...term, value: hide(term.value) } : term));
  return reveal(await method(where ? { ...hidden, where } : hidden), tokens);
}

function mapWritten(call: Call, change: (row: Row) => Row): Call {
  return {
    ...call,
    ...(call.data ? { data: change(call.data) } : {}),
    ...(call.update ? { update: change(call.update) } : {}),
  };
}

/** Puts the token back into a result if the call contained this token. All other sessions show only the hash. */
function reveal(result: unknown, tokens: ReadonlyMap<unknown, string>): unknown {
  if (Array.isArray(result)) return result.map((row) => reveal(row, tokens));
  if (typeof result !== 'object' || result === null || !('token' in result)) return result;
  return { ...result, token: tokens.get(result.token) ?? result.token };
}

const withoutTokens = (row: Row): Row =>
  Object.fromEntries(Object.entries(row).filter(([name]) => !PROVIDER_TOKENS.includes(name)));
