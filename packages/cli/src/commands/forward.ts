// `sandbar forward`: listens on a port of this computer and passes each connection on to a port of a machine.
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { pipeline } from 'node:stream';
import type { Command } from '@commander-js/extra-typings';
import type { PortConnection } from '@sandbar/sdk/port-connection.ts';
import type { Ports } from '@sandbar/sdk/ports.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';
import { parseId, parsePortPair, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { onInterruption } from '../interruption.ts';
import { printLine, printNotice } from '../print.ts';
import { BY_NAME, resolveId } from '../resolve-id.ts';

export function defineForward(command: Command): void {
  const defined = command
    .argument('<machine>', `the machine, ${BY_NAME}`, parseId)
    .argument('<ports>', 'PORT, or LOCAL:REMOTE when they differ; LOCAL 0 chooses a free one', parsePortPair)
    .option('--bind <address>', 'the address of this computer to listen on', '127.0.0.1')
    .addHelpText(
      'after',
      `
Passes connections to the LOCAL port of this computer on to the REMOTE port of the machine, for any protocol over TCP. It
does so until Ctrl-C.`,
    )
    .action(async (machine, { local, remote }, { bind }) => {
      const client = connect();
      const machineId = await resolveId(client, 'machine', machine);
      const ports = client.ports(machineId);
      // If the machine does not exist or does not run, fail now rather than at the first connection.
      await ports.list();
      const signal = onInterruption();
      const sockets = new Set<Socket>();
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
        sockets.add(socket.once('close', () => sockets.delete(socket)));
        void forward(socket, ports, remote);
      });
      server.listen(local, bind);
      await once(server, 'listening').catch((error: Error) => {
        throw new UsageError(`cannot listen on ${bind}:${local}: ${error.message}`);
      });
      const { address, port } = server.address() as AddressInfo;
      const host = address.includes(':') ? `[${address}]` : address;
      printLine(`${host}:${port} leads to port ${remote} of machine ${machineId}; Ctrl-C ends it`);
      if (!signal.aborted) await once(signal, 'abort');
      server.close();
      for (const socket of sockets) socket.destroy();
      throw signal.reason;
    });
  addExamples(defined, 'sandbar forward web 8000', 'sandbar forward web 5433:5432');
}

/** Passes bytes both ways until both directions have ended. Resets `socket` if the port cannot be reached. */
async function forward(socket: Socket, ports: Ports, port: number): Promise<void> {
  let remote: PortConnection;
  try {
    remote = await ports.connect(port);
  } catch (error) {
    printNotice(error instanceof SandbarError ? error.message : String(error));
    socket.resetAndDestroy();
    return;
  }
  // When one side breaks, reset the other side too. After a normal close, its program would believe that it has got all
  // data.
  const breakBoth = (error: NodeJS.ErrnoException | null | undefined) => {
    if (!error) return;
    remote.destroy();
    if (!socket.destroyed) socket.resetAndDestroy();
  };
  pipeline(socket, remote, breakBoth);
  pipeline(remote, socket, breakBoth);
}
