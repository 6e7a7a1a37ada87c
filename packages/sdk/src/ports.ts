// Ports of a machine: list the open ports, get an address for a browser, set who may use a port, and connect to a port
// with any protocol.
import type { Port, PortAccess, PortList, PortToken } from '@sandbar/contract/port.ts';
import { PORT_PROTOCOL } from '@sandbar/contract/port-bounds.ts';
import { platform } from '#platform';
import type { CallOptions } from './call-options.ts';
import { machinePath } from './machines.ts';
import type { PortConnection } from './port-connection.ts';
import type { Transport } from './transport.ts';

/** How long a connection may take to open, ms. The service itself gives up after 10 s. */
const CONNECT_MS = 30_000;

export type TokenOptions = CallOptions & {
  /** How long the token is valid, seconds. Default: 3600. */
  expiresInSec?: number | undefined;
};

export class Ports {
  readonly #transport: Transport;
  readonly #path: string;

  constructor(transport: Transport, machineId: string) {
    this.#transport = transport;
    this.#path = `${machinePath(machineId)}/ports`;
  }

  /** The ports on which programs listen now, both public and private. */
  async list(call: CallOptions = {}): Promise<Port[]> {
    return (await this.#transport.json<PortList>('GET', this.#path, call)).ports;
  }

  /**
   * An address that opens the port in a browser, with a token, so it works for a private port too. Whoever has the
   * address may use the port until the token expires.
   */
  async url(port: number, options: TokenOptions = {}): Promise<string> {
    return (await this.token(port, options)).url;
  }

  /** A token that is valid only for this port. Programs send it in the header X-Sandbar-Key. */
  token(port: number, { expiresInSec, ...call }: TokenOptions = {}): Promise<PortToken> {
    const body = expiresInSec === undefined ? {} : { expires_in_sec: expiresInSec };
    return this.#transport.json('POST', `${this.#path}/${port}/token`, { ...call, body, isRepeatable: true });
  }

  /** Makes the port public, so that everybody may use it, or private again. No program has to listen on the port yet. */
  setAccess(port: number, access: PortAccess, call: CallOptions = {}): Promise<Port> {
    return this.#transport.json('PUT', `${this.#path}/${port}`, { ...call, body: { access } });
  }

  /**
   * Opens a TCP connection to the port, for any protocol. `end()` closes only the direction to the program. Throws
   * SandbarError, such as `port_not_open`. Does not work in browsers.
   */
  async connect(port: number, { signal, timeoutMs = CONNECT_MS }: CallOptions = {}): Promise<PortConnection> {
    const { baseUrl, userAgent, authorization } = this.#transport;
    const path = `${this.#path}/${port}/connect`;
    const target = { baseUrl, userAgent, authorization, path, protocol: PORT_PROTOCOL };
    const limit = this.#transport.limit({ signal, timeoutMs });
    try {
      return platform.toDuplex(await platform.openSocket(target, limit.signal), baseUrl);
    } finally {
      limit.isDone();
    }
  }
}
