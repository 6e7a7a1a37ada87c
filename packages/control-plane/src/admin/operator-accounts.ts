// The routes for accounts on the operator's pages of the dashboard.
import type { TypeBoxTypeProvider } from '@fastify/type-provider-typebox';
import {
  AccountCreate,
  AccountCredit,
  AccountCredited,
  AccountDetails,
  AccountOverrides,
  AccountSummaryList,
  AccountTier,
  NewAccount,
  NewPassword,
} from '@sandbar/contract/admin.ts';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { Uuid } from '@sandbar/contract/fields.ts';
import type { FastifyInstance } from 'fastify';
import { Type } from 'typebox';
import { isOperator } from '../accounts/store.ts';
import type { App } from '../app.ts';
import type { AccountRow } from '../db/tables.ts';
import { credit } from './account-money.ts';
import { changeStatus } from './account-status.ts';
import {
  changeTier,
  createAccount,
  overrideLimits,
  resetPassword,
  showAccount,
  summariseAccounts,
} from './accounts.ts';
import { exampleCredited, exampleDetails, exampleNewAccount, exampleNewPassword, exampleSummary } from './examples.ts';
import { OPERATOR } from './operator-access.ts';

const tags = ['Operator'];
/** Takes only the id, and no e-mail address as on the admin socket, because proxies log URLs. */
const params = Type.Object({ id: Uuid('The account.') });
const ACCOUNTS = '/admin/v1/accounts';
const ACCOUNT = `${ACCOUNTS}/:id`;
const STATUS_CHANGES = {
  suspend: {
    operationId: 'suspendAccount',
    summary: 'Suspend an account',
    description:
      'Stops its machines. Until it is resumed, it can read but change nothing. 409 for an operator account.',
  },
  resume: {
    operationId: 'resumeAccount',
    summary: 'Resume an account',
    description: 'Ends a suspension. Its machines stay stopped until they are started. 409 for an operator account.',
  },
} as const;

export function addOperatorAccountRoutes(untyped: FastifyInstance, app: App): void {
  const server = untyped.withTypeProvider<TypeBoxTypeProvider>();

  server.route({
    method: 'GET',
    url: ACCOUNTS,
    schema: {
      operationId: 'listAccounts',
      summary: 'List all accounts',
      description: 'All accounts of the service, oldest first, with deleted and suspended ones.',
      tags,
      response: { 200: AccountSummaryList },
    },
    config: { ...OPERATOR, examples: { response: { accounts: [exampleSummary] } } },
    handler: () => summariseAccounts(app),
  });

  server.route({
    method: 'POST',
    url: ACCOUNTS,
    schema: {
      operationId: 'createAccount',
      summary: 'Make an account',
      description: 'Makes an account with a first API key and a password. Both are shown once, in this answer.',
      tags,
      body: AccountCreate,
      response: { 201: NewAccount },
    },
    config: {
      ...OPERATOR,
      errors: ['conflict'],
      examples: { request: { email: 'ada@example.com', credit_eur: '25' }, response: exampleNewAccount },
    },
    handler: async ({ body }, reply) => reply.code(201).send(await createAccount(app, body)),
  });

  server.route({
    method: 'GET',
    url: ACCOUNT,
    schema: {
      operationId: 'showAccount',
      summary: 'Show an account',
      description: 'An account with its use, its limits and its rates.',
      tags,
      params,
      response: { 200: AccountDetails },
    },
    config: { ...OPERATOR, examples: { response: exampleDetails } },
    handler: (request) => showAccount(app, request.params.id),
  });

  server.route({
    method: 'POST',
    url: `${ACCOUNT}/tier`,
    schema: {
      operationId: 'changeTier',
      summary: 'Change the tier of an account',
      description: 'Sets the tier, which decides the limits that are not overridden. 409 for an operator account.',
      tags,
      params,
      body: AccountTier,
      response: { 200: AccountDetails },
    },
    config: { ...OPERATOR, errors: ['conflict'], examples: { request: { tier: 'payg' }, response: exampleDetails } },
    handler: (request) => changeTier(app, request.params.id, request.body, refuseOperator),
  });

  server.route({
    method: 'POST',
    url: `${ACCOUNT}/limits`,
    schema: {
      operationId: 'overrideLimits',
      summary: 'Override the limits of an account',
      description:
        'A number sets an override, null removes it, and limits that are not named stay as they are. 409 for an ' +
        'operator account.',
      tags,
      params,
      body: AccountOverrides,
      response: { 200: AccountDetails },
    },
    config: {
      ...OPERATOR,
      errors: ['conflict'],
      examples: { request: { machines: 40, vcpus: null }, response: exampleDetails },
    },
    handler: (request) => overrideLimits(app, request.params.id, request.body, refuseOperator),
  });

  server.route({
    method: 'POST',
    url: `${ACCOUNT}/credit`,
    schema: {
      operationId: 'creditAccount',
      summary: 'Credit an account',
      description:
        'Adds money to the wallet, or corrects it. A reference can be used once: a repeated request with the same ' +
        'reference and amount changes nothing and answers is_new false.',
      tags,
      params,
      body: AccountCredit,
      response: { 200: AccountCredited },
    },
    config: {
      ...OPERATOR,
      errors: ['conflict'],
      examples: { request: { eur: '25', as: 'top-up', reference: 'transfer-0001' }, response: exampleCredited },
    },
    handler: (request) => credit(app, request.params.id, request.body),
  });

  server.route({
    method: 'POST',
    url: `${ACCOUNT}/password`,
    schema: {
      operationId: 'resetAccountPassword',
      summary: 'Reset the password of an account',
      description:
        'Sets a new random password and ends all sessions of the account. 409 for an operator account, whose password is ' +
        'reset on the computer of the service.',
      tags,
      params,
      response: { 200: NewPassword },
    },
    config: { ...OPERATOR, errors: ['conflict'], examples: { response: exampleNewPassword } },
    handler: (request) => resetPassword(app, request.params.id, refuseOperator),
  });

  for (const change of ['suspend', 'resume'] as const) {
    server.route({
      method: 'POST',
      url: `${ACCOUNT}/${change}`,
      schema: { ...STATUS_CHANGES[change], tags, params, response: { 200: AccountDetails } },
      config: { ...OPERATOR, errors: ['conflict'], examples: { response: exampleDetails } },
      handler: (request) => changeStatus(app, request.params.id, change, refuseOperator),
    });
  }
}

/**
 * Refuses the account of an operator, also the caller's own. One operator must not be able to take over or to block the
 * account of another one, such as the owner's, and an operator who is suspended could not undo that.
 */
function refuseOperator(account: AccountRow): void {
  if (!isOperator(account)) return;
  throw new ServiceError(
    'conflict',
    'The account of an operator is changed on the computer of the service, with `sandbar admin account`.',
  );
}
