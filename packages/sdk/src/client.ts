// The client: `new Sandbar()` on the machine of the service, or with an address and a key anywhere.
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
};

/**
 * A client of the service. Every call throws ApiError when the service refuses, ConnectionError when nobody answers, and
 * takes a `signal` that gives it up.
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
    const transport = new Transport(resolveSettings(options), options.userAgent);
    this.baseUrl = transport.baseUrl;
    this.machines = new Machines(transport);
    this.execs = new Execs(transport);
    this.images = new Images(transport);
    this.volumes = new Volumes(transport);
    this.snapshots = new Snapshots(transport);
    this.account = new Account(transport);
  }
}
