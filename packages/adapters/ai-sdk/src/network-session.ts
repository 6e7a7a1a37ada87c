// A session of the AI SDK's harness. In addition to commands and files, it has ports, and it can stop the machine.
import {
  HarnessCapabilityUnsupportedError,
  type HarnessV1NetworkSandboxSession,
  type HarnessV1PortEndpoint,
} from '@ai-sdk/harness';
import type { Sandbox } from '@sandbar/sdk';
import { MachineSession, type SessionOptions } from './session.ts';

export const PROVIDER_ID = 'sandbar';

/** Port tokens are valid as long as the service allows, because the harness asks for an endpoint only once. */
const PORT_TOKEN_SEC = 7 * 24 * 3600;

type PortOptions = Parameters<HarnessV1NetworkSandboxSession['getPortEndpoint']>[0];
/** `isOwner`: whether `stop` and `destroy` act on the machine. */
type NetworkOptions = SessionOptions & { ports?: readonly number[] | undefined; isOwner: boolean };

export class NetworkSession extends MachineSession implements HarnessV1NetworkSandboxSession {
  readonly #sandbox: Sandbox;
  readonly #options: NetworkOptions;
  readonly id: string;
  ports: readonly number[];

  constructor(sandbox: Sandbox, directory: string, options: NetworkOptions) {
    super(sandbox, directory, options);
    this.#sandbox = sandbox;
    this.#options = options;
    this.id = sandbox.id;
    this.ports = options.ports ?? [];
  }

  /**
   * The service decides whether connections are encrypted. So a request for `https` may get an `http` address, and a
   * request for `ws` a `wss` address.
   */
  async getPortEndpoint({ port, protocol }: PortOptions): Promise<HarnessV1PortEndpoint> {
    const { token, url } = await this.#token(port);
    const address = withProtocol(url, protocol);
    address.search = '';
    return { url: address.toString(), headers: { 'x-sandbar-key': token } };
  }

  /** An address of the port that contains its token, for a browser or a WebSocket. */
  async getPortUrl({ port, protocol }: PortOptions): Promise<string> {
    return withProtocol((await this.#token(port)).url, protocol).toString();
  }

  async setPorts(ports: readonly number[]): Promise<void> {
    this.ports = [...ports];
  }

  /** Stops the machine and keeps its disk. */
  async stop(): Promise<void> {
    if (this.#options.isOwner) await this.#sandbox.stop();
  }

  /** Destroys the machine and its disk. */
  async destroy(): Promise<void> {
    if (this.#options.isOwner) await this.#sandbox.destroy();
  }

  restricted(): MachineSession {
    return new MachineSession(this.#sandbox, this.defaultWorkingDirectory, this.#options);
  }

  async #token(port: number) {
    if (!this.ports.includes(port)) {
      const message = `Port ${port} is not exposed. Exposed ports: [${this.ports.join(', ')}].`;
      throw new HarnessCapabilityUnsupportedError({ harnessId: PROVIDER_ID, message });
    }
    return this.#sandbox.ports.token(port, { expiresInSec: PORT_TOKEN_SEC });
  }
}

function withProtocol(text: string, protocol: PortOptions['protocol']): URL {
  const url = new URL(text);
  if (protocol === 'ws') url.protocol = url.protocol === 'https:' ? 'wss:' : 'ws:';
  return url;
}
