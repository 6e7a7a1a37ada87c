// Connects the official MCP client to the MCP server for the real service, over each transport.
import assert from 'node:assert/strict';
import { fileURLToPath } from 'node:url';
import { Client as McpClient, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { API_KEY, BASE_URL } from '../../e2e/support/service.ts';

const ENTRY = fileURLToPath(new URL('../../../packages/mcp/src/testing/stdio-entry.ts', import.meta.url));
/** The time limit of one call, ms. It is long, because a machine boots slowly under emulation. */
const TIMEOUT_MS = 120_000;

/** `auto` speaks the newest version of the protocol, `legacy` one of 2025. */
type Mode = 'auto' | 'legacy';

export async function connectStdio(mode: Mode, apiKey = API_KEY): Promise<McpClient> {
  const agent = new McpClient({ name: 'e2e', version: '1' }, { versionNegotiation: { mode } });
  const env = { ...(process.env as Record<string, string>), SANDBAR_BASE_URL: BASE_URL, SANDBAR_API_KEY: apiKey };
  await agent.connect(new StdioClientTransport({ command: process.execPath, args: [ENTRY], env }));
  return agent;
}

export async function connectHttp(url: string, mode: Mode, apiKey = API_KEY): Promise<McpClient> {
  const agent = new McpClient({ name: 'e2e', version: '1' }, { versionNegotiation: { mode } });
  const headers = { authorization: `Bearer ${apiKey}` };
  await agent.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return agent;
}

type Args = Record<string, unknown>;

/** Calls a tool and returns its structured content. Fails when the result is an error. */
export async function use<T = Record<string, unknown>>(agent: McpClient, name: string, args: Args): Promise<T> {
  const result = await agent.callTool({ name, arguments: args }, { timeout: TIMEOUT_MS });
  assert.ok(!result.isError, `${name}: ${JSON.stringify(result.content)}`);
  return result.structuredContent as T;
}

/** Calls a tool and returns the text of its error. Fails when the call succeeds. */
export async function failure(agent: McpClient, name: string, args: Args): Promise<string> {
  const result = await agent.callTool({ name, arguments: args }, { timeout: TIMEOUT_MS });
  const text = result.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
  assert.ok(result.isError, `${name}: ${text}`);
  return text;
}
