// Mail: the one that lets somebody set a new password.
import { createTransport } from 'nodemailer';
import type { App } from '../app.ts';

export type Mailer = {
  /** Sends the link in the background. */
  sendReset: (to: string, token: string) => void;
};

/** Undefined where no mail server is configured. */
export function createMailer(app: App): Mailer | undefined {
  const { mail, publicUrl } = app.config.auth;
  if (!mail) return undefined;
  const transport = createTransport(mail.smtpUrl);
  return {
    sendReset: (to, token) => {
      // In the fragment, which browsers keep to themselves: it is in no server's log.
      const link = `${publicUrl}/reset-password#token=${token}`;
      const text = `Somebody, probably you, asked for a new password for your Sandbar account.

Set one here within an hour:
${link}

If it was not you, do nothing: your password stays as it is.
`;
      transport
        .sendMail({ from: mail.from, to, subject: 'Set a new password for Sandbar', text })
        .catch((error: unknown) => app.log.error({ err: error }, 'a mail could not be sent'));
    },
  };
}
