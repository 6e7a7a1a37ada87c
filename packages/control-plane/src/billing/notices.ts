// Warns an account whose money runs out: when a fifth of the balance after the last credit is left, at zero, and 7 days
// and 1 day before the reclaimer acts. The account's row stores the latest warning. So each warning is given only once
// until money comes in, even with several replicas. A warning is recorded even if no mail server is configured, because
// the reclaimer acts only after the last warning.
import { type RawBuilder, sql } from 'kysely';
import type { App } from '../app.ts';
import { inTransaction } from '../db/transaction.ts';
import { queueMails } from '../mail/outbox.ts';
import { type Grace, graceOf, interval, isOutOfMoney } from './grace.ts';
import { type Notice, noticeText } from './notice-texts.ts';

/** How many accounts one transaction warns. */
const BATCH = 500;

/** `isDue`: SQL condition on `accounts`. `leftMs`: the shortest time from the warning to the reclaimer. */
type Stage = { notice: Notice; isDue: RawBuilder<boolean>; leftMs: number };

/**
 * SQL condition on `accounts`: the account owns something that the reclaimer would remove. The subquery does not depend
 * on the account, so PostgreSQL reads each table once, and not once for each account.
 */
const ownsSomething = sql<boolean>`accounts.id in (
  select account_id from machines where state <> 'destroyed'
  union all select account_id from volumes
  union all select account_id from snapshots)`;

/** The stages in their order. An account goes from one stage to the next, and starts anew when money comes in. */
function stagesOf({ windowMs, weekMs, dayMs }: Grace): Stage[] {
  return [
    {
      notice: 'low',
      isDue: sql<boolean>`accounts.billing_mode = 'prepaid' and accounts.notice is null
        and accounts.balance_micros > 0 and accounts.balance_micros * 5 <= accounts.full_micros`,
      leftMs: windowMs,
    },
    {
      notice: 'empty',
      // An account that never had money and owns nothing, such as a new one, is not warned.
      isDue: sql<boolean>`${isOutOfMoney} and (accounts.notice is null or accounts.notice = 'low')
        and (accounts.full_micros > 0 or ${ownsSomething})`,
      leftMs: windowMs,
    },
    {
      notice: 'week',
      isDue: sql<boolean>`${isOutOfMoney} and accounts.notice = 'empty'
        and accounts.empty_since <= now() - ${interval(windowMs - weekMs)} and ${ownsSomething}`,
      leftMs: weekMs,
    },
    {
      notice: 'day',
      isDue: sql<boolean>`${isOutOfMoney} and accounts.notice = 'week'
        and accounts.notice_at <= now() - ${interval(weekMs - dayMs)}
        and accounts.empty_since <= now() - ${interval(windowMs - dayMs)}`,
      leftMs: dayMs,
    },
  ];
}

/** Gives all warnings that are due. Throws when the database does not answer. */
export async function giveNotices(app: App): Promise<void> {
  const grace = graceOf(app.config);
  for (const stage of stagesOf(grace)) {
    let count = BATCH;
    while (count === BATCH && !app.closing.aborted) count = await giveSome(app, grace, stage);
  }
}

type Warned = { id: string; email: string; balance_micros: number; reclaim_at: Date | null };

/** Warns up to `BATCH` accounts, and inserts their mails in the same transaction. Returns how many it warned. */
async function giveSome(app: App, { windowMs }: Grace, { notice, isDue, leftMs }: Stage): Promise<number> {
  const warned = await inTransaction(app.db, async (tx) => {
    // The subquery skips rows that are locked, so two replicas neither wait for each other nor warn twice.
    const { rows } = await sql<Warned>`
      update accounts set notice = ${notice}, notice_at = now()
      where id in (select accounts.id from accounts where accounts.deleted_at is null and ${isDue}
        order by accounts.id limit ${BATCH} for no key update skip locked)
      returning id, email, balance_micros,
        greatest(empty_since + ${interval(windowMs)}, now() + ${interval(leftMs)}) as reclaim_at`.execute(tx);
    const { publicUrl } = app.config.auth;
    const mails = rows.map(({ email, balance_micros: balanceMicros, reclaim_at: reclaimAt }) => ({
      recipient: email,
      ...noticeText(notice, { balanceMicros, reclaimAt, publicUrl }),
    }));
    await queueMails(app, tx, mails);
    return rows;
  });
  for (const { id } of warned) app.log.info({ account_id: id, notice }, 'an account was warned about its balance');
  return warned.length;
}
