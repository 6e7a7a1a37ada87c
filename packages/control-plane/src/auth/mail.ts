// The mail with the link for setting a new password. It is sent at once and not stored in the outbox, because the
// link's token must not be in the database.
import type { App } from '../app.ts';
import { sendMail } from '../mail/transport.ts';

const SUBJECT = 'Set a new password for Sandbar';

export type Mailer = {
  /** Sends the link in the background. */
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
      sendMail(mail, { to, subject: SUBJECT, text }).catch((error: unknown) =>
        app.log.error({ err: error }, 'a mail could not be sent'),
      );
    },
  };
}
