// Records what the activity feed leaves out and a recount of the use needs: the rows of machines, volumes and snapshots
// at each change of their state, and each change of an account's billing mode. Triggers record it when a transaction
// commits, with the account's instant. So the record depends on no code of the service except the clock of the account.
import { sql } from 'kysely';
import { asOwner, type Db } from '../../src/db/database.ts';
import type { Log } from '../../src/log.ts';

/** `before` and `after`: the row as JSON; null if there is none. `at`: the instant of the account at the commit. */
export type StateChange = {
  table_name: 'machines' | 'volumes' | 'snapshots' | 'accounts';
  row_id: string;
  before: Record<string, unknown> | null;
  after: Record<string, unknown> | null;
  at: Date;
};

/** Adds the triggers. The tables exist already. */
export async function keepStateLog(databaseUrl: string, log: Log): Promise<void> {
  await asOwner(databaseUrl, log, async (owner) => {
    await sql`create schema observed`.execute(owner);
    await sql`grant usage on schema observed to public`.execute(owner);
    await sql`
      create table observed.changes (
        id bigint generated always as identity primary key,
        account_id uuid not null, table_name text not null, row_id uuid not null,
        before jsonb, after jsonb, at timestamptz(3) not null
      )`.execute(owner);
    await sql`grant select on observed.changes to public`.execute(owner);
    await sql`
      create function observed.note() returns trigger language plpgsql security definer as $$
      declare
        row jsonb := coalesce(to_jsonb(new), to_jsonb(old));
        account uuid := coalesce(row ->> 'account_id', row ->> 'id');
      begin
        insert into observed.changes (account_id, table_name, row_id, before, after, at)
        select account, tg_table_name, (row ->> 'id')::uuid, to_jsonb(old), to_jsonb(new), activity_at
        from public.accounts where id = account;
        return null;
      end $$`.execute(owner);
    for (const table of ['machines', 'volumes', 'snapshots']) {
      await deferTrigger(owner, table, 'born', 'insert or delete', sql``);
      await deferTrigger(owner, table, 'moved', 'update', sql`when (old.state is distinct from new.state)`);
    }
    await deferTrigger(owner, 'accounts', 'mode', 'update', sql`when (old.billing_mode <> new.billing_mode)`);
  });
}

async function deferTrigger(owner: Db, table: string, name: string, events: string, when: ReturnType<typeof sql>) {
  await sql`create constraint trigger ${sql.ref(`observed_${name}`)} after ${sql.raw(events)} on ${sql.table(table)}
    deferrable initially deferred for each row ${when} execute function observed.note()`.execute(owner);
}

/** The recorded changes of an account, in the order of their commits. */
export async function readStateLog(db: Db, accountId: string): Promise<StateChange[]> {
  const { rows } = await sql<StateChange>`
    select table_name, row_id, before, after, at from observed.changes where account_id = ${accountId} order by id`.execute(
    db,
  );
  return rows;
}
