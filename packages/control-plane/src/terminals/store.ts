// The SQL of terminal tickets.
import { TERMINAL_BOUNDS } from '@sandbar/contract/terminal.ts';
import { type Selectable, sql } from 'kysely';
import { deleteInBatches } from '../db/batches.ts';
import type { Db } from '../db/database.ts';
import { statement } from '../db/statement.ts';
import type { TerminalTicketTable } from '../db/tables.ts';
import { hashTicket, looksLikeTicket } from './ticket.ts';

export type TicketRow = Selectable<TerminalTicketTable>;
export type SpentTicket = Omit<TicketRow, 'ticket_hash' | 'expires_at'>;

/** Stores the hash of a new ticket, and returns the time at which the ticket expires. */
export async function insertTicket(db: Db, ticket: string, opens: SpentTicket): Promise<Date> {
  const { wanted, ...rest } = opens;
  const row = await db
    .insertInto('terminal_tickets')
    .values({
      ...rest,
      ticket_hash: hashTicket(ticket),
      wanted: JSON.stringify(wanted),
      expires_at: sql<Date>`now() + make_interval(secs => ${sql.lit(TERMINAL_BOUNDS.ticketSec)})`,
    })
    .returning('expires_at')
    .executeTakeFirstOrThrow();
  return row.expires_at;
}

/** What a spent ticket opens, and whether its account is suspended and so may open nothing. */
export type TicketFound = SpentTicket & { is_suspended: boolean };

/**
 * Spends a ticket: deletes it and returns what it opens, in one statement, so that only one of several requests with
 * the same ticket succeeds. Returns undefined when the ticket is unknown, spent, expired or of another machine, or when
 * the credential of the client that got it has ended, or its account is deleted.
 */
export async function spendTicket(db: Db, ticket: string, machineId: string): Promise<TicketFound | undefined> {
  if (!looksLikeTicket(ticket)) return undefined;
  const [row] = await deleteTicket(db, hashTicket(ticket), machineId);
  return row;
}

const deleteTicket = statement((db, hash: Buffer, machineId: string) =>
  db
    .deleteFrom('terminal_tickets as t')
    .using('accounts as a')
    .where('ticket_hash', '=', hash)
    .whereRef('a.id', '=', 't.account_id')
    .where('a.deleted_at', 'is', null)
    // Compared as text, because the path of a request may have anything in the place of the machine's id.
    .where(sql<boolean>`t.machine_id::text = lower(${machineId})`)
    .where(sql<boolean>`t.expires_at > now()`)
    .where(
      sql<boolean>`case via
        when 'key' then exists (
          select from api_keys where id = t.credential_id and (expires_at is null or expires_at > now()))
        else exists (select from sessions where id = t.credential_id and expires_at > now()) end`,
    )
    .returning(['t.account_id', 't.machine_id', 't.terminal_id', 't.wanted', 't.via', 't.credential_id'])
    .returning(sql<boolean>`a.suspended_at is not null`.as('is_suspended')),
);

/** Removes expired tickets, until `closing` is aborted. Spent tickets are deleted already. */
export async function sweepTickets(db: Db, closing?: AbortSignal): Promise<void> {
  await deleteInBatches(db, 'terminal_tickets', sql`expires_at < now()`, closing);
}
