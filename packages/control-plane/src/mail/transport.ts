// Sends a mail through the mail server of the configuration.
import type { AuthConfig } from '../auth/config.ts';

export type MailServer = NonNullable<AuthConfig['mail']>;
export type Mail = { to: string; subject: string; text: string; messageId?: string };

/** How long the mail server may take to connect, and how long it may be silent, milliseconds. */
const CONNECT_MS = 10_000;
const SILENCE_MS = 30_000;

/** Resolves when the mail server has accepted the mail. Throws its refusal, or the error of the connection. */
export async function sendMail({ smtpUrl, from }: MailServer, mail: Mail): Promise<void> {
  // Loaded when the first mail is sent: most services never send one.
  const { createTransport } = await import('nodemailer');
  const timeouts = { connectionTimeout: CONNECT_MS, greetingTimeout: CONNECT_MS, socketTimeout: SILENCE_MS };
  await createTransport({ url: smtpUrl, ...timeouts }).sendMail({ from, ...mail });
}
