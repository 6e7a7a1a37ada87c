// The MCP server that both transports use: its name, its instructions for agents, and all tools.
import { McpServer } from '@modelcontextprotocol/server';
import type { Client } from '@sandbar/sdk/client.ts';
import { VERSION } from '@sandbar/sdk/version.ts';
import { EXEC_TOOLS } from './exec-tools.ts';
import { FILE_TOOLS } from './file-tools.ts';
import { machineRun } from './machine-run-tool.ts';
import { MACHINE_TOOLS } from './machine-tools.ts';
import { PORT_TOOLS } from './port-tools.ts';
import type { RunningCalls } from './running-calls.ts';
import { SNAPSHOT_TOOLS } from './snapshot-tools.ts';

const INSTRUCTIONS =
  'Sandbar gives you isolated Linux machines. machine_run runs one command in a machine of its own. For several steps: ' +
  'machine_create, then exec, file_write, file_read, port_url, and machine_delete at the end. Machines and jobs are named ' +
  'by their ids. Long output is cut; read on from next_offset.';

/** Creates a server for one connection. Its tools use the API key of `client`. */
export function createServer(client: Client, calls: RunningCalls): McpServer {
  const server = new McpServer(
    { name: 'sandbar', title: 'Sandbar', version: VERSION },
    { capabilities: { tools: { listChanged: false } }, instructions: INSTRUCTIONS },
  );
  for (const register of [
    machineRun,
    ...MACHINE_TOOLS,
    ...EXEC_TOOLS,
    ...FILE_TOOLS,
    ...PORT_TOOLS,
    ...SNAPSHOT_TOOLS,
  ]) {
    register({ server, client, calls });
  }
  return server;
}
