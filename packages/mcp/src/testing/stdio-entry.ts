// A program that serves over standard input and output, as `sandbar mcp` does. Tests start it.
import { Client } from '@sandbar/sdk/client.ts';
import { serveStdio } from '../stdio.ts';

const server = serveStdio(new Client({ retryForSec: 5 }), { onError: ({ message }) => console.error(message) });
process.once('SIGTERM', () => void server.close());
await server.closed;
