// Connects the official MCP client to an MCP server in the same process, for tests of the tools.
import { InMemoryTransport, Client as McpClient } from '@modelcontextprotocol/client';
import { Client } from '@sandbar/sdk/client.ts';
import { RunningCalls } from '../running-calls.ts';
import { createServer } from '../server.ts';

export type Connection = { agent: McpClient; calls: RunningCalls; close(): Promise<void> };

/** The tools that `agent` calls use the service at `baseUrl`, without retries. */
export async function connectTo(baseUrl: string): Promise<Connection> {
  const calls = new RunningCalls();
  const server = createServer(new Client({ baseUrl, apiKey: 'sbr_test', retryForSec: 0 }), calls);
  const agent = new McpClient({ name: 'test', version: '1' });
  const [here, there] = InMemoryTransport.createLinkedPair();
  await server.connect(there);
  await agent.connect(here);
  return { agent, calls, close: () => agent.close() };
}

/** The text of the first content block of a result. */
export function textOf(result: { content: { type: string; text?: string }[] }): string {
  return result.content[0]?.text ?? '';
}
