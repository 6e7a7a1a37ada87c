// A program that serves MCP over standard input and output, like `sandbar mcp`. Tests start it.
import { Client } from '@sandbar/sdk/client.ts';
import { serveStdio } from '../stdio.ts';

const server = serveStdio(new Client({ retryForSec: 5 }), { onError: ({ message }) => console.error(message) });
process.once('SIGTERM', () => void server.close());
await server.closed;
