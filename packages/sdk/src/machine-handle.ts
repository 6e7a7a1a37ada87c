// One machine by its id: what can be done inside of it.
import { Files } from './files.ts';
import { MachinePort, Ports } from './ports.ts';
import type { TerminalConnection } from './terminal-connection.ts';
import { type OpenTerminalOptions, Terminals } from './terminals.ts';
import type { Transport } from './transport.ts';

export class MachineHandle {
  readonly id: string;
  readonly files: Files;
  readonly #terminals: Terminals;
  readonly ports: Ports;
  readonly #transport: Transport;

  constructor(transport: Transport, id: string) {
    this.id = id;
    this.#terminals = new Terminals(transport);
    this.files = new Files(transport, id);
    this.ports = new Ports(transport, id);
    this.#transport = transport;
  }

  /** A port of the machine: `machine.port(8000).url()`. Sends nothing. */
  port(port: number): MachinePort {
    return new MachinePort(this.#transport, this.id, port);
  }

  /** Opens a terminal in the machine, or joins one that runs; the same as `terminals.open`. */
  terminal(options: OpenTerminalOptions = {}): Promise<TerminalConnection> {
    return this.#terminals.open(this.id, options);
  }
}
