// The client: `new Sandbar()` on the computer where the service runs, `new Sandbar({ baseUrl, apiKey })` anywhere else.
import { Account } from './account.ts';
import { Billing } from './billing.ts';
import { Execs } from './execs.ts';
import { Images } from './images.ts';
import { MachineHandle } from './machine-handle.ts';
import { Machines } from './machines.ts';
import { resolveSettings } from './settings.ts';
import { Snapshots } from './snapshots.ts';
import { Terminals } from './terminals.ts';
import { Transport } from './transport.ts';
import { Volumes } from './volumes.ts';

export type SandbarOptions = {
  /** Default: `SANDBAR_BASE_URL`, else the address in credentials.json of the service on this computer. */
  baseUrl?: string;
  /** Default: `SANDBAR_API_KEY`, else the key in credentials.json of the service on this computer. */
  apiKey?: string;
  /** The name of the calling program, put before the client's own User-Agent. */
  userAgent?: string;
  /**
   * How long the client retries a call after a 429, a 503 or a broken connection, in seconds from the first failure.
   * Default: 60. 0: never. After a broken connection it only retries calls that cannot act twice: all but the creation
   * of volumes and snapshots.
   */
  retryForSec?: number;
};

/**
 * A client of the service. A call throws ApiError when the service answers with an error, and ConnectionError when it
 * does not answer. When its `signal` is aborted, it throws the signal's reason.
 */
export class Sandbar {
  readonly baseUrl: string;
  readonly machines: Machines;
  readonly execs: Execs;
  readonly terminals: Terminals;
  readonly images: Images;
  readonly volumes: Volumes;
  readonly snapshots: Snapshots;
  readonly account: Account;
  readonly billing: Billing;
  readonly #transport: Transport;

  /** Throws ConfigurationError when the address or the key is missing or empty. */
  constructor(options: SandbarOptions = {}) {
    const transport = new Transport(resolveSettings(options), options);
    this.#transport = transport;
    this.baseUrl = transport.baseUrl;
    this.machines = new Machines(transport);
    this.execs = new Execs(transport);
    this.terminals = new Terminals(transport);
    this.images = new Images(transport);
    this.volumes = new Volumes(transport);
    this.snapshots = new Snapshots(transport);
    this.account = new Account(transport);
    this.billing = new Billing(transport);
  }

  /** The machine with this id, for what is inside of it: `sandbar.machine(id).files.read('/etc/hostname')`. Sends nothing. */
  machine(id: string): MachineHandle {
    return new MachineHandle(this.#transport, id);
  }
}
