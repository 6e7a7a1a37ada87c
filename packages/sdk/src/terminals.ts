// Terminals: open a shell in a machine, join a running terminal, list terminals, and end a terminal.
import type { Terminal, TerminalList, TerminalSession, TerminalSessionCreate } from '@sandbar/contract/terminal.ts';
import type { CallOptions } from './call-options.ts';
import { machinePath } from './machines.ts';
import { acceptNotFound } from './service-errors.ts';
import { TerminalConnection, type TerminalEvents } from './terminal-connection.ts';
import type { Transport } from './transport.ts';

export type OpenTerminalOptions = CallOptions & TerminalSessionCreate & TerminalEvents;

export class Terminals {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /**
   * Opens a terminal and resolves when it is connected. Without `command` it runs a login shell. With `terminal_id` it
   * joins a running terminal, and first gets the last 256 KiB of its output. An abort of `signal` leaves the terminal,
   * which keeps running in the machine for 10 minutes.
   */
  async open(machineId: string, options: OpenTerminalOptions = {}): Promise<TerminalConnection> {
    const { signal, timeoutMs, onDisconnect, onReconnect, onGap, ...request } = options;
    const createSession = (body: TerminalSessionCreate, signal: AbortSignal) =>
      this.#transport.json<TerminalSession>('POST', `${machinePath(machineId)}/terminal-session`, {
        body,
        // A ticket that nobody uses expires, so a second ticket does no harm.
        isRepeatable: true,
        signal,
        timeoutMs,
      });
    const events = { onDisconnect, onReconnect, onGap };
    return TerminalConnection.open(this.#transport, createSession, request, { signal, ...events });
  }

  /** The terminals that are open in a running machine, oldest first. */
  async list(machineId: string, call: CallOptions = {}): Promise<Terminal[]> {
    const path = `${machinePath(machineId)}/terminals`;
    return (await this.#transport.json<TerminalList>('GET', path, call)).terminals;
  }

  /** Ends a terminal and its processes. */
  end(machineId: string, terminalId: string, call: CallOptions = {}): Promise<void> {
    const path = `${machinePath(machineId)}/terminals/${encodeURIComponent(terminalId)}`;
    return this.#transport.run('DELETE', path, call, acceptNotFound);
  }
}
