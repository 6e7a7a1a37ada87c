// A mail server that keeps every message it receives.
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import { after } from 'node:test';
import { SMTPServer } from 'smtp-server';

export type MailServer = {
  url: string;
  /** The messages so far, with their headers. */
  mails: string[];
  /** While true, the server refuses every message. */
  refuses: boolean;
};

/** Starts the server. It is stopped after the tests of the file. */
export async function startMail(): Promise<MailServer> {
  const state: MailServer = { url: '', mails: [], refuses: false };
  const server = new SMTPServer({
    authOptional: true,
    disabledCommands: ['STARTTLS'],
    onMailFrom: (_address, _session, done) => done(state.refuses ? new Error('not now') : undefined),
    onData: (stream, _session, done) => {
      let text = '';
      stream.on('data', (chunk) => {
        text += chunk;
      });
      stream.on('end', () => {
        state.mails.push(text.replaceAll('=\r\n', '').replaceAll('=3D', '='));
        done();
      });
    },
  });
  server.listen(0, '127.0.0.1');
  await once(server.server, 'listening');
  after(() => new Promise<void>((resolve) => server.close(resolve)));
  state.url = `smtp://127.0.0.1:${(server.server.address() as AddressInfo).port}`;
  return state;
}
