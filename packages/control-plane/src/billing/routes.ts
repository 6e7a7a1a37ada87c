// The HTTP endpoints that show use and the ledger.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import {
  LedgerDetails,
  type LedgerEntry,
  LedgerList,
  LedgerParams,
  LedgerQuery,
  USAGE_DAYS_MAX,
  Usage,
  UsageItem,
  UsageQuery,
} from '@sandbar/contract/billing.ts';
import type { FastifyInstance } from 'fastify';
import type { App } from '../app.ts';
import { callerOf } from '../http/auth.ts';
import { sendCsv, toCsv, wantsCsv } from '../http/csv.ts';
import { Places } from '../http/places.ts';
import { exampleCharge, exampleDetails, exampleEntry, exampleUsage } from './examples.ts';
import { getLedgerEntry, listLedger } from './ledger-entries.ts';
import { getUsage } from './usage.ts';

const tags = ['Billing'];
/**
 * How many usage queries of an account one replica answers at once. A query over much use takes seconds, and all
 * accounts share the replica's connections to the database.
 */
const USAGE_QUERIES_MAX = 4;
const USAGE_COLUMNS = Object.keys(UsageItem.properties);
const LEDGER_COLUMNS = [
  ...['id', 'created_at', 'kind', 'amount', 'balance', 'vcpu', 'memory', 'storage', 'snapshot'],
  ...['charged_from', 'charged_to', 'reference', 'note'],
];

export function addBillingRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();
  const places = new Places(USAGE_QUERIES_MAX, 'usage queries');

  server.route({
    method: 'GET',
    url: '/v1/billing/usage',
    schema: {
      operationId: 'getUsage',
      summary: 'Get the usage',
      description:
        `What the account used from one time to another, at most ${USAGE_DAYS_MAX} days, and what that cost. Kinds that were not ` +
        'used are left out. The total equals what the ledger charges for the range. With Accept: text/csv the items ' +
        'come as CSV.',
      tags,
      querystring: UsageQuery,
      response: { 200: Usage },
    },
    config: {
      access: 'read',
      producesCsv: true,
      errors: ['rate_limited'],
      examples: { response: exampleUsage },
    },
    handler: async (request, reply) => {
      const { accountId } = callerOf(request);
      const leave = places.take(accountId);
      const usage = await getUsage(app, accountId, request.query).finally(leave);
      reply.header('vary', 'Accept');
      return wantsCsv(request) ? sendCsv(reply, toCsv(USAGE_COLUMNS, usage.items)) : usage;
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/billing/ledger',
    schema: {
      operationId: 'listLedger',
      summary: 'List the ledger',
      description:
        'Everything that changed the wallet, newest first. Entries are never changed. With Accept: text/csv the entries ' +
        'come as CSV, and the header Link names the next page.',
      tags,
      querystring: LedgerQuery,
      response: { 200: LedgerList },
    },
    config: {
      access: 'read',
      producesCsv: true,
      examples: { response: { entries: [exampleCharge, exampleEntry], next_cursor: '' } },
    },
    handler: async (request, reply) => {
      const list = await listLedger(app, callerOf(request).accountId, request.query);
      reply.header('vary', 'Accept');
      if (!wantsCsv(request)) return list;
      if (list.next_cursor !== '') reply.header('link', linkToNext(request.url, list.next_cursor));
      return sendCsv(reply, toCsv(LEDGER_COLUMNS, list.entries.map(flatten)));
    },
  });

  server.route({
    method: 'GET',
    url: '/v1/billing/ledger/:id',
    schema: {
      operationId: 'getLedgerEntry',
      summary: 'Get a ledger entry',
      description:
        'An entry. A charge has lines: which resource was used, from when to when, how much, and at which price.',
      tags,
      params: LedgerParams,
      response: { 200: LedgerDetails },
    },
    config: { access: 'read', examples: { response: exampleDetails } },
    handler: async (request) => getLedgerEntry(app, callerOf(request).accountId, request.params.id),
  });
}

/** Moves the amounts of `by_kind` into columns of their own, because CSV has no nested values. */
const flatten = ({ by_kind, ...entry }: LedgerEntry) => ({ ...entry, ...by_kind });

/** The header Link (RFC 8288) with the address of the next page, relative to this one. */
function linkToNext(url: string, cursor: string): string {
  const [path = '', query] = url.split('?');
  const parameters = new URLSearchParams(query);
  parameters.set('cursor', cursor);
  return `<${path}?${parameters}>; rel="next"`;
}
