// The client: `new Sandbar()` on the computer where the service runs, `new Sandbar({ baseUrl, apiKey })` anywhere else.
import { Account } from './account.ts';
import { Execs } from './execs.ts';
import { Images } from './images.ts';
import { Machines } from './machines.ts';
import { resolveSettings } from './settings.ts';
import { Snapshots } from './snapshots.ts';
import { Transport } from './transport.ts';
import { Volumes } from './volumes.ts';

export type SandbarOptions = {
  /** Default: `SANDBAR_BASE_URL`, else credentials.json of the service on this machine. */
  baseUrl?: string;
  /** Default: `SANDBAR_API_KEY`, else credentials.json of the service on this machine. */
  apiKey?: string;
  /** Put before the client's own User-Agent. */
  userAgent?: string;
  /**
   * How long a call is retried when the service answers 429 or 503 or the connection breaks, in seconds from its first
   * failure. Default: 60. 0: never. A call is only retried where a second request cannot do the same thing twice.
   */
  retryForSec?: number;
};

/**
 * A client of the service. Every call throws ApiError when the service answers with an error and ConnectionError when it
 * does not answer. Aborting the `signal` of a call ends it, and the call throws the signal's reason.
 */
export class Sandbar {
  readonly baseUrl: string;
  readonly machines: Machines;
  readonly execs: Execs;
  readonly images: Images;
  readonly volumes: Volumes;
  readonly snapshots: Snapshots;
  readonly account: Account;

  /** Throws ConfigurationError when no address or key is given or found. */
  constructor(options: SandbarOptions = {}) {
    const transport = new Transport(resolveSettings(options), options);
    this.baseUrl = transport.baseUrl;
    this.machines = new Machines(transport);
    this.execs = new Execs(transport);
    this.images = new Images(transport);
    this.volumes = new Volumes(transport);
    this.snapshots = new Snapshots(transport);
    this.account = new Account(transport);
  }
}
