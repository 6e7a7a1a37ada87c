// The tool that makes an address for a port, by which people and programs reach a server in a machine.
import { PORT_BOUNDS } from '@sandbar/contract/port-bounds.ts';
import { z } from 'zod';
import { machineId } from './fields.ts';
import { ADDS, defineTool, type RegisterTool } from './tool.ts';

const portUrl = defineTool({
  name: 'port_url',
  title: 'Get the address of a port',
  description:
    'Returns an address that opens an HTTP or WebSocket server of a running machine, in a browser. ' +
    'Whoever has the address may use the port until it expires. Start the server with exec_start first.',
  input: z.strictObject({
    machine_id: machineId,
    port: z.int().min(1).max(65_535),
    expires_in_sec: z
      .int()
      .min(PORT_BOUNDS.tokenSecMin)
      .max(PORT_BOUNDS.tokenSecMax)
      .default(PORT_BOUNDS.tokenSecDefault)
      .describe('Seconds that the address is valid.'),
  }),
  output: z.object({
    url: z.string(),
    token: z.string().describe('For programs: header X-Sandbar-Key, instead of the token in url.'),
    expires_at: z.string(),
    is_listening: z.boolean().describe('Whether a program listens on the port now.'),
  }),
  annotations: ADDS,
  run: async ({ machine_id, port, expires_in_sec: expiresInSec }, { client, signal }) => {
    const ports = client.ports(machine_id);
    const [address, open] = await Promise.all([ports.token(port, { expiresInSec, signal }), ports.list({ signal })]);
    const { url, token, expires_at } = address;
    const is_listening = open.some((found) => found.port === port);
    const others = open.map((found) => found.port).join(', ');
    const warning = is_listening ? '' : `\nNothing listens on port ${port} yet. Open ports: ${others || 'none'}.`;
    return { data: { url, token, expires_at, is_listening }, text: `${url}\nValid until ${expires_at}.${warning}` };
  },
});

export const PORT_TOOLS: RegisterTool[] = [portUrl];
