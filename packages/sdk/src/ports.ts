// Ports of a machine: which are open, addresses for browsers, who may use one, and connections for any protocol.
import type { Duplex } from 'node:stream';
import type { Port, PortAccess, PortList, PortToken } from '@sandbar/contract/port.ts';
import type { CallOptions } from './machines.ts';
import { connectPort } from './port-connection.ts';
import type { Transport } from './transport.ts';

export type TokenOptions = CallOptions & {
  /** How long the token is valid, seconds. Default: 3600. */
  expiresInSec?: number | undefined;
};

export class Ports {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, machineId: string) {
    this.#transport = transport;
    this.#path = `/v1/machines/${encodeURIComponent(machineId)}/ports`;
  }

  /** The ports on which programs listen now, whatever their access. */
  async list({ signal }: CallOptions = {}): Promise<Port[]> {
    return (await this.#transport.json<PortList>('GET', this.#path, { signal })).ports;
  }
}

export class MachinePort {
  readonly port: number;
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, machineId: string, port: number) {
    this.port = port;
    this.#transport = transport;
    this.#path = `/v1/machines/${encodeURIComponent(machineId)}/ports/${port}`;
  }

  /**
   * An address that opens the port in a browser, with a token, so it works for a private port too. Whoever has the
   * address may use the port until the token expires.
   */
  async url(options: TokenOptions = {}): Promise<string> {
    return (await this.token(options)).url;
  }

  /** A token for this port alone. Programs send it in the header X-Sandbar-Key. */
  token({ expiresInSec, signal }: TokenOptions = {}): Promise<PortToken> {
    const body = expiresInSec === undefined ? {} : { expires_in_sec: expiresInSec };
    return this.#transport.json('POST', `${this.#path}/token`, { body, isRepeatable: true, signal });
  }

  /** Makes the port public, which everybody may use, or private again. No program has to listen on it now. */
  setAccess(access: PortAccess, { signal }: CallOptions = {}): Promise<Port> {
    return this.#transport.json('PUT', this.#path, { body: { access }, signal });
  }

  /**
   * Opens a TCP connection to the port, for any protocol. `end()` ends the direction to the program alone. Throws
   * ApiError, such as `port_not_open`.
   */
  connect({ signal }: CallOptions = {}): Promise<Duplex> {
    return connectPort(this.#transport, `${this.#path}/connect`, signal);
  }
}
