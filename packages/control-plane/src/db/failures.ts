// What an error of the database means: the database is away or overloaded for now, the outcome of a commit is unknown, two
// transactions were in each other's way, or a statement broke a rule of a table.

import type { QueryFailure } from './watch.ts';

/**
 * Thrown when no connection to a server that accepts writes could be opened, or when a connection broke during a
 * statement.
 * `cause` is the error of the connection.
 */
export class DatabaseAway extends Error {
  constructor(cause: unknown) {
    super(messageOf(cause), { cause });
  }
}

/**
 * The connection broke after the commit was sent and before its answer came. The transaction may have been committed or
 * not. So nobody may be told that nothing happened.
 */
export class CommitUnknown extends Error {
  constructor(cause: unknown) {
    super(`The outcome of a commit is unknown: ${messageOf(cause)}`, { cause });
  }
}

/** A server answers, but its connections cannot be used: it accepts no writes, or the connection has the wrong role. */
export class UnusableServer extends Error {}

/** A failure to connect to both IPv4 and IPv6 is an AggregateError without a message of its own. */
function messageOf(error: unknown): string {
  if (error instanceof AggregateError) return error.errors.map(messageOf).join('; ');
  return error instanceof Error ? error.message || error.name : String(error);
}

/**
 * SQLSTATE codes of a temporary failure: connection exceptions, server shutdown, crash and start, too many connections,
 * a server that has become read-only, and a statement that was cancelled by its time-out or by an administrator.
 */
const AWAY_SQLSTATE = /^(08...|57P0[1235]|53300|25006|57014)$/;
const AWAY_ERRNO = new Set([
  ...['ECONNREFUSED', 'ECONNRESET', 'ECONNABORTED', 'ENOENT', 'EPIPE', 'ETIMEDOUT', 'ENOTFOUND', 'EAI_AGAIN'],
  ...['EHOSTUNREACH', 'EHOSTDOWN', 'ENETUNREACH', 'ENETDOWN'],
]);
const AWAY_MESSAGE =
  /^(Query read timeout|timeout exceeded when trying|timeout expired|Connection terminated|Client (has encountered|was closed))/;

/** Returns true if the error means that the database does not answer. Other errors are bugs. */
export function isDatabaseAway(error: unknown): boolean {
  if (!(error instanceof Error)) return false;
  if (error instanceof DatabaseAway || error instanceof CommitUnknown || error instanceof UnusableServer) return true;
  if (error instanceof AggregateError) return error.errors.some(isDatabaseAway);
  const code = codeOf(error);
  return AWAY_SQLSTATE.test(code) || AWAY_ERRNO.has(code) || AWAY_MESSAGE.test(error.message) || endsConnection(error);
}

/** After an error of these severities PostgreSQL closes the connection, whatever the code says. */
const endsConnection = (error: Error): boolean =>
  'severity' in error && (error.severity === 'FATAL' || error.severity === 'PANIC');

/** Returns true if the server of this connection no longer accepts writes, because another one has become primary. */
export const isReadOnlyServer = (error: unknown): boolean => error instanceof Error && codeOf(error) === '25006';

const CONFLICT_SQLSTATES = ['40001', '40P01'];

/**
 * Returns true if PostgreSQL rolled the transaction back because of a parallel one: a serialization failure or a
 * deadlock. The transaction can be repeated.
 */
export const isTransactionConflict = (error: unknown): boolean =>
  error instanceof Error && CONFLICT_SQLSTATES.includes(codeOf(error));

const DISK_FULL_SQLSTATE = '53100';

/** Returns true if the database failed because its disk is full. */
export const isDatabaseFull = (error: unknown): boolean =>
  error instanceof Error && codeOf(error) === DISK_FULL_SQLSTATE;

/**
 * SQLSTATE codes of a server that answers but cannot do a statement now: it lacks a resource, waited too long for a lock,
 * or its operating system failed.
 */
const STRAINED_SQLSTATE = /^(53...|55P03|58...)$/;

/**
 * Returns true if the error says nothing about the statement or the data: the database is away, lacks something, or rolled
 * back because of a parallel transaction. The same work can succeed later.
 */
export const isDatabaseFailure = (error: unknown): boolean =>
  isDatabaseAway(error) ||
  isTransactionConflict(error) ||
  (error instanceof Error && STRAINED_SQLSTATE.test(codeOf(error)));

/** Returns true if the error is a violation of the named unique constraint or index. */
export function isUniqueViolation(error: unknown, constraint: string): boolean {
  return (
    error instanceof Error && codeOf(error) === '23505' && 'constraint' in error && error.constraint === constraint
  );
}

/** Why a statement failed, for the metrics. */
export function failureOf(error: unknown): QueryFailure {
  if (isDatabaseAway(error)) return 'unavailable';
  if (isDatabaseFull(error)) return 'full';
  // Class 23 of SQLSTATE: integrity constraint violation.
  return error instanceof Error && codeOf(error).startsWith('23') ? 'constraint' : 'other';
}

const codeOf = (error: Error): string => ('code' in error ? String(error.code) : '');
