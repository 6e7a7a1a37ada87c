// The client. `new Client()` works on the computer where the service runs, and after `sandbar login`; `new Client({
// baseUrl, apiKey })` works anywhere. Its calls have the same fields as the REST API. `Sandbox` is a shorter way to use
// one machine.
import { Account } from './account.ts';
import { Activity } from './activity.ts';
import { ApiKeys } from './api-keys.ts';
import { Billing } from './billing.ts';
import type { CallOptions } from './call-options.ts';
import { Execs } from './execs.ts';
import { Files } from './files.ts';
import { Images } from './images.ts';
import { Machines } from './machines.ts';
import { Ports } from './ports.ts';
import { Quotas } from './quotas.ts';
import { Sandbox } from './sandbox.ts';
import { resolveSettings } from './settings.ts';
import { Snapshots } from './snapshots.ts';
import { Terminals } from './terminals.ts';
import { type Query, Transport } from './transport.ts';
import { Volumes } from './volumes.ts';

export type ClientOptions = {
  /** Default: `SANDBAR_BASE_URL`, else the address in the file of `sandbar login` or of the service on this computer. */
  baseUrl?: string | undefined;
  /** Default: `SANDBAR_API_KEY`, else the key in the same file. */
  apiKey?: string | undefined;
  /** The name of the calling program, put before the client's own User-Agent. */
  userAgent?: string | undefined;
  /**
   * How long the client retries a call after a 429, a 503 or a broken connection, in seconds from the first failure.
   * Default: 60. 0: never. A retry never carries out a call twice, with one exception: `execs.signal` may send its
   * signal twice.
   */
  retryForSec?: number | undefined;
  /** How long a call may take in all, with its retries, in ms. Default: 120,000. See `timeoutMs` of {@link CallOptions}. */
  timeoutMs?: number | undefined;
};

export type ApiRequest = CallOptions & {
  query?: Query | undefined;
  /** Sent as JSON. */
  body?: unknown;
  headers?: Record<string, string> | undefined;
};

/**
 * A client of the service. A call throws SandbarError when the service answers with an error, ConnectionError when it
 * does not answer, and TimeoutError when it takes too long. When its `signal` is aborted, it throws the signal's reason.
 */
export class Client {
  readonly baseUrl: string;
  readonly machines: Machines;
  readonly execs: Execs;
  readonly terminals: Terminals;
  readonly volumes: Volumes;
  readonly snapshots: Snapshots;
  readonly images: Images;
  readonly apiKeys: ApiKeys;
  readonly quotas: Quotas;
  readonly activity: Activity;
  readonly billing: Billing;
  readonly account: Account;
  readonly #transport: Transport;

  /** Throws ConfigurationError when the address or the key is missing or empty. */
  constructor(options: ClientOptions = {}) {
    const transport = new Transport(resolveSettings(options), options);
    this.#transport = transport;
    this.baseUrl = transport.baseUrl;
    this.machines = new Machines(transport);
    this.execs = new Execs(transport);
    this.terminals = new Terminals(transport);
    this.volumes = new Volumes(transport);
    this.snapshots = new Snapshots(transport);
    this.images = new Images(transport);
    this.apiKeys = new ApiKeys(transport);
    this.quotas = new Quotas(transport);
    this.activity = new Activity(transport);
    this.billing = new Billing(transport);
    this.account = new Account(transport);
  }

  /** The files of a machine: `client.files(id).read('/etc/hostname')`. Sends nothing. */
  files(machineId: string): Files {
    return new Files(this.#transport, machineId);
  }

  /** The ports of a machine: `client.ports(id).url(8000)`. Sends nothing. */
  ports(machineId: string): Ports {
    return new Ports(this.#transport, machineId);
  }

  /** A handle of the machine with this id. Sends nothing, so it does not check that the machine exists. */
  sandbox(machineId: string): Sandbox {
    return new Sandbox(this, machineId);
  }

  /**
   * Sends any request to the API: `await client.request('GET', '/v1/account')`. It adds the key and retries like every
   * other call, and returns the response of a successful request without reading its body. After a broken connection it
   * repeats every request except POST.
   */
  request(method: string, path: string, { headers = {}, ...options }: ApiRequest = {}): Promise<Response> {
    return this.#transport.open(method, path, { ...options, headers });
  }
}
