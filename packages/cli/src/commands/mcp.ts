// `sandbar mcp`: serves the tools of the service to AI agents.
import type { Command } from '@commander-js/extra-typings';
import { resolveSettings } from '@sandbar/sdk/settings.ts';
import { parsePort } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { onInterruption } from '../interruption.ts';
import { printNotice } from '../print.ts';

const LOCAL_HOST = '127.0.0.1';

export function defineMcp(command: Command): void {
  command
    .option('--http <port>', 'serve over HTTP on this port; each request carries its own API key', parsePort)
    .option('--host <address>', `the address for --http (${LOCAL_HOST})`)
    .addHelpText(
      'after',
      `
Speaks the Model Context Protocol over standard input and output, with the key of the CLI. With --http it serves several
clients, each with the key that it sends as Authorization: Bearer KEY, until Ctrl-C.`,
    )
    .action(async ({ http: port, host = LOCAL_HOST }) => {
      const onError = ({ message }: Error) => printNotice(message);
      if (port === undefined) {
        const { serveStdio } = await import('@sandbar/mcp/stdio.ts');
        const server = serveStdio(connect(), { onError });
        onInterruption().addEventListener('abort', () => void server.close(), { once: true });
        await server.closed;
        return;
      }
      const { serveHttp } = await import('@sandbar/mcp/http.ts');
      const { baseUrl } = resolveSettings({});
      const server = await serveHttp({ host, port, baseUrl, onError });
      printNotice(`serves ${server.url}; Ctrl-C ends it`);
      const signal = onInterruption();
      await new Promise<void>((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
      await server.close();
    });
  addExamples(command, 'sandbar mcp', 'sandbar mcp --http 7080');
}
