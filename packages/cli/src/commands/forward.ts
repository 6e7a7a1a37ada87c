// `sandbar forward`: listens on a port of this computer and passes each connection on to a port of a machine.
import { once } from 'node:events';
import { type AddressInfo, createServer, type Socket } from 'node:net';
import { type Duplex, pipeline } from 'node:stream';
import type { Command } from '@commander-js/extra-typings';
import { ApiError } from '@sandbar/sdk/errors.ts';
import type { MachinePort } from '@sandbar/sdk/ports.ts';
import { parseId, parsePortPair, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { Interrupted, onInterruption } from '../interruption.ts';
import { printLine, printNotice } from '../print.ts';

export function defineForward(command: Command): void {
  command
    .argument('<machine>', 'the id of the machine', parseId)
    .argument('<ports>', 'PORT, or LOCAL:REMOTE when they differ; LOCAL 0 chooses a free one', parsePortPair)
    .option('--bind <address>', 'the address of this computer to listen on', '127.0.0.1')
    .addHelpText(
      'after',
      `
sandbar forward MACHINE 8000:80 passes connections to port 8000 of this computer on to port 80 of the machine, for any
protocol over TCP. It does so until Ctrl-C.`,
    )
    .action(async (machineId, { local, remote }, { bind }) => {
      const machine = connect().machine(machineId);
      // If the machine does not exist or does not run, fail here and not only at the first connection.
      await machine.ports.list();
      const signal = onInterruption();
      const sockets = new Set<Socket>();
      const server = createServer({ allowHalfOpen: true, pauseOnConnect: true }, (socket) => {
        sockets.add(socket.once('close', () => sockets.delete(socket)));
        void forward(socket, machine.port(remote));
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
      if (signal.reason instanceof Interrupted) process.exitCode = signal.reason.exitCode;
    });
}

/** Passes bytes both ways until both directions have ended. A connection that cannot be made is closed. */
async function forward(socket: Socket, port: MachinePort): Promise<void> {
  let remote: Duplex;
  try {
    remote = await port.connect();
  } catch (error) {
    printNotice(error instanceof ApiError ? error.message : String(error));
    socket.resetAndDestroy();
    return;
  }
  // When one side breaks, break the other side too, so that its program does not take a part of the data for the whole.
  const breakBoth = (error: NodeJS.ErrnoException | null | undefined) => {
    if (!error) return;
    remote.destroy();
    if (!socket.destroyed) socket.resetAndDestroy();
  };
  pipeline(socket, remote, breakBoth);
  pipeline(remote, socket, breakBoth);
}
