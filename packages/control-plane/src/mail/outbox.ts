// The outbox: mails that wait to be sent. A mail is inserted in the transaction of the change that it reports. So it is
// not lost, and it is not sent if the change is rolled back. Several replicas send mails. Each claims a mail before it
// sends it, so that no two send the same mail. If a process dies after it has sent a mail and before it has deleted the
// row, the mail is sent again, with the same Message-ID.
import { type Selectable, sql } from 'kysely';
import type { App } from '../app.ts';
import { forEachBounded, sleep } from '../concurrency.ts';
import type { MailTable } from '../db/billing-tables.ts';
import type { Db, Tx } from '../db/database.ts';
import { pauseAfterMs } from '../operations/store.ts';
import { type MailServer, sendMail } from './transport.ts';

export type MailText = { subject: string; body: string };
export type NewMail = MailText & { recipient: string };
type MailRow = Selectable<MailTable>;

/**
 * How long a mail belongs to the process that claimed it, and how long that process tries to send it, milliseconds. The
 * claim outlasts the attempt, so two processes never send the same mail at once.
 */
const CLAIM_MS = 600_000;
const ATTEMPT_MS = 120_000;
/** With pauses that double from a minute to an hour, these take three days. After that the mail is out of date. */
const ATTEMPTS_MAX = 78;
/** How many mails one replica sends at once, so that one slow delivery does not hold up all others. */
const WIDTH = 4;

/** Inserts mails in the transaction of the caller. Does nothing when no mail server is configured. */
export async function queueMails(app: App, tx: Tx, mails: readonly NewMail[]): Promise<void> {
  if (!app.config.auth.mail || mails.length === 0) return;
  await tx.insertInto('mails').values(mails).execute();
}

/**
 * Sends all mails that are due. If the mail server does not accept a mail, it is tried again after a growing pause.
 * After three days it is dropped, with an error in the log. Throws when the database does not answer.
 */
export async function sendDueMails(app: App): Promise<void> {
  const server = app.config.auth.mail;
  if (!server) return;
  const workers = Array.from({ length: WIDTH }, (_, index) => index);
  await forEachBounded(workers, WIDTH, async () => {
    while (!app.closing.aborted) {
      const mail = await claimMail(app.db);
      if (!mail) return;
      await deliver(app, server, mail);
    }
  });
}

/** Claims the mail that has been due for longest. Returns undefined if none is due. */
function claimMail(db: Db): Promise<MailRow | undefined> {
  return db
    .updateTable('mails')
    .set({ attempts: sql`attempts + 1`, due_at: afterMs(CLAIM_MS) })
    .where('id', '=', (mails) =>
      mails
        .selectFrom('mails')
        .select('id')
        .where('due_at', '<=', sql<Date>`now()`)
        .orderBy('due_at')
        .limit(1)
        .forUpdate()
        .skipLocked(),
    )
    .returningAll()
    .executeTakeFirst();
}

const afterMs = (ms: number) => sql<Date>`now() + ${ms} * interval '1 millisecond'`;

async function deliver(app: App, server: MailServer, mail: MailRow): Promise<void> {
  const { id, attempts } = mail;
  const result = await tryToSend(app, server, mail);
  if (result === 'unknown') return;
  if (result === 'accepted') {
    await app.db.deleteFrom('mails').where('id', '=', id).execute();
    return;
  }
  if (attempts >= ATTEMPTS_MAX) {
    await app.db.deleteFrom('mails').where('id', '=', id).execute();
    app.log.error({ err: result.error, mail_id: id, attempts }, 'a mail could not be sent and was dropped');
    return;
  }
  const pauseMs = pauseAfterMs(attempts, app.config.timing.mailRetryMs);
  // The number of attempts differs if this claim has expired and another process has claimed the mail.
  const postponed = app.db.updateTable('mails').set({ due_at: afterMs(pauseMs) });
  await postponed.where('id', '=', id).where('attempts', '=', attempts).execute();
  app.log.warn({ err: result.error, mail_id: id, attempts }, 'a mail could not be sent yet');
}

/** `unknown`: the attempt took too long or the process stops. The mail is tried again when its claim has expired. */
type Result = 'accepted' | 'unknown' | { error: unknown };

async function tryToSend(app: App, server: MailServer, { id, recipient, subject, body }: MailRow): Promise<Result> {
  const messageId = `<${id}@${new URL(app.config.auth.publicUrl).hostname}>`;
  const ended = new AbortController();
  const limit = sleep(ATTEMPT_MS, AbortSignal.any([app.closing, ended.signal]));
  const sending = sendMail(server, { to: recipient, subject, text: body, messageId }).then(
    (): Result => 'accepted',
    (error: unknown): Result => ({ error }),
  );
  const result = await Promise.race([sending, limit.then((): Result => 'unknown')]);
  ended.abort();
  return result;
}
