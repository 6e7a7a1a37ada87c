// A fake QEMU monitor, which answers the agent's commands as the test says.
import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { join } from 'node:path';
import { QmpClient } from '../../src/hypervisor/qmp.ts';
import { connectUnix } from '../../src/hypervisor/unix-socket.ts';

export type Command = { execute: string; arguments?: Record<string, unknown>; id: number };

/**
 * Listens at `dir/name`, connects to it, and passes every command after the greeting to `onCommand`. `close` ends both
 * sides.
 */
export async function openMonitor(dir: string, name: string, onCommand: (command: Command, qemu: Socket) => void) {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(join(dir, name), resolve));
  const accepted = once(server, 'connection');
  const host = await connectUnix(dir, name);
  const [qemu] = (await accepted) as [Socket];
  let text = '';
  qemu.on('error', () => {});
  qemu.on('data', (chunk) => {
    const lines = (text + chunk).split('\n');
    text = lines.pop() ?? '';
    for (const line of lines) {
      const command: Command = JSON.parse(line);
      if (command.execute === 'qmp_capabilities') qemu.write(`{"return": {}, "id": ${command.id}}\n`);
      else onCommand(command, qemu);
    }
  });
  const close = () => {
    host.destroy();
    qemu.destroy();
    server.close();
  };
  return { qmp: await QmpClient.open(host), qemu, host, close };
}
