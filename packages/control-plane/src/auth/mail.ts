// The mail with the link for setting a new password. It is sent at once and not stored in the outbox, because the
// link's token must not be in the database.
import type { App } from '../app.ts';
import { type Mail, type MailServer, sendMail } from '../mail/transport.ts';

const SUBJECT = 'Set a new password for Sandbar';

export type Mailer = {
  /** Sends the link in the background, unless the account is suspended: that changes nothing, not even its password. */
  sendReset: (to: string, token: string) => void;
};

/** Makes the sender of mails; undefined when no mail server is configured. */
export function createMailer(app: App): Mailer | undefined {
  const { mail, publicUrl } = app.config.auth;
  if (!mail) return undefined;
  return {
    sendReset: (to, token) => {
      // The token is in the fragment of the URL, which browsers do not send, so it appears in no server's log.
      const link = `${publicUrl}/reset-password#token=${token}`;
      const text = `Somebody, probably you, asked for a new password for your Sandbar account.

Set one here within an hour:
${link}

If it was not you, do nothing: your password stays as it is.
`;
      sendUnlessSuspended(app, { to, subject: SUBJECT, text }, mail).catch((error: unknown) =>
        app.log.error({ err: error }, 'a mail could not be sent'),
      );
    },
  };
}

async function sendUnlessSuspended({ db }: App, mail: Mail, server: MailServer): Promise<void> {
  const account = await db
    .selectFrom('accounts')
    .select('id')
    .where('email', '=', mail.to)
    .where('suspended_at', 'is', null)
    .executeTakeFirst();
  if (account) await sendMail(server, mail);
}
