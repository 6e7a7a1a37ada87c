// Connects to the ports of one machine for the stream `ports.connect`. The host connects to the machine's address
// itself, which is the fastest way. The guest agent connects where the host cannot: without root, and to programs that
// listen on the machine's loopback address only.
import type { Socket } from 'node:net';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { GuestStream } from '../guest/guest-stream.ts';
import type { HostNetwork } from '../network/network.ts';
import type { MachineVm } from './machine-vm.ts';
import type { RecordBook } from './record-book.ts';

export const CONNECT_STREAM = 'ports.connect';

export class MachinePorts {
  readonly #network: HostNetwork;
  readonly #book: RecordBook;
  readonly #vm: MachineVm;

  constructor(network: HostNetwork, book: RecordBook, vm: MachineVm) {
    this.#network = network;
    this.#book = book;
    this.#vm = vm;
  }

  /**
   * Opens a connection. `params`: the JSON of the stream. The connection is destroyed when the VM ends. Throws
   * `validation_error`, `conflict` when the machine does not run, and `port_not_open` with the open ports.
   */
  async connect(params: string): Promise<GuestStream> {
    const port = readPort(params);
    const link = this.#vm.link();
    const socket = await this.#network.connect(this.#book.record.spec.private_ip, port);
    if (!socket) {
      const guest = await link.guest();
      return guest.openStream(CONNECT_STREAM, params);
    }
    // The machine may have stopped meanwhile, and another one may have its address now.
    if (!this.#vm.isCurrent(link)) {
      socket.destroy();
      throw this.#vm.notRunning();
    }
    this.#vm.endWith(socket);
    return streamOf(socket);
  }
}

function readPort(params: string): number {
  const { port } = Object(JSON.parse(params)) as { port?: unknown };
  if (typeof port === 'number' && Number.isInteger(port) && port >= 1 && port <= 65_535) return port;
  throw new ServiceError('validation_error', 'port must be an integer from 1 to 65535');
}

/** The stream ends well when the program has ended its direction, and is cut when the connection breaks before. */
function streamOf(socket: Socket): GuestStream {
  const { promise: result, resolve, reject } = Promise.withResolvers<string>();
  result.catch(() => {});
  socket.once('error', (error: NodeJS.ErrnoException) => {
    const why = error.code ?? error.message;
    reject(new ServiceError('conflict', `the connection to the program broke: ${why}`, { cause: error }));
  });
  socket.once('end', () => resolve('{}'));
  socket.once('close', () => reject(new Error('The connection to the program was cut.')));
  return { head: '{}', duplex: socket, result };
}
