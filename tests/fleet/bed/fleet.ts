// The fleet of the test: PostgreSQL, replicas of the control plane behind a balancer, and hosts in network namespaces
// that have joined. All of them are real processes, as an operator would start them.
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { postAdmin } from '@sandbar/service/admin-client.ts';
import { getUnixJson } from '@sandbar/service/unix-request.ts';
import { freePorts } from '../../../packages/control-plane/tests/support/free-ports.ts';
import { Balancer } from './balancer.ts';
import { FleetNetwork } from './network.ts';
import { Restartable } from './processes.ts';

const CHECKOUT = path.resolve(import.meta.dirname, '../../..');
const NODE = path.join(CHECKOUT, 'node_modules/node/bin/node');
const CLI = path.join(CHECKOUT, 'packages/cli/bin/sandbar.mjs');
const AGENT_PORT = 7072;
/** Some checks of the balancer, and time for the slowest create. */
const DRAIN_SEC = 2;
const SHUTDOWN_SEC = 60;

export type FleetOptions = {
  hosts: number;
  replicas: number;
  databaseUrl: string;
  /** After how many seconds without contact the machines of a host are given up. */
  hostLeaseSec: number;
  /** More variables of the environment of the replicas, and of the agents. */
  replicaEnv?: NodeJS.ProcessEnv;
  agentEnv?: NodeJS.ProcessEnv;
  /** Prepares the empty data directory of a host. Returns what takes that back when the host has ended. */
  prepareHome?: (home: string) => () => void;
};

/** `readyUrl`: what a load balancer asks whether it may send requests. */
export type Replica = Restartable & { home: string; url: string; readyUrl: string };

export class Fleet {
  readonly network: FleetNetwork;
  readonly folder: string;
  readonly replicas: Replica[] = [];
  readonly hosts: Restartable[] = [];
  readonly #undo: (() => void)[] = [];
  #balancer: Balancer | undefined;

  static async start(options: FleetOptions): Promise<Fleet> {
    const fleet = new Fleet(FleetNetwork.create(options.hosts));
    try {
      await fleet.#startReplicas(options);
      for (let host = 1; host <= options.hosts; host++) await fleet.#joinHost(host, options);
      return fleet;
    } catch (error) {
      await fleet.close();
      throw error;
    }
  }

  private constructor(network: FleetNetwork) {
    this.network = network;
    // The name is short, because the path of a data directory may have at most 76 bytes.
    this.folder = mkdtempSync('/tmp/sbfl-');
  }

  /** The address of the service for clients: the balancer. */
  get url(): string {
    return this.#balancer?.url ?? '';
  }

  get homes(): string[] {
    return this.replicas.map(({ home }) => home);
  }

  homeOfHost(host: number): string {
    return path.join(this.folder, `h${host}`);
  }

  /** The ids of the machines that a host has. */
  machinesOn(host: number): string[] {
    return readdirSync(homePaths(this.homeOfHost(host)).machines);
  }

  /** Sends a request to the operator's socket of the first replica. Throws when it is refused. */
  async operator(request: string, body: object): Promise<Record<string, unknown>> {
    const answer = await postAdmin(homePaths(this.homes[0] ?? '').adminSocket, request, body);
    if (answer.status >= 300) throw new Error(`${request} answered ${answer.status}: ${JSON.stringify(answer.body)}`);
    return answer.body;
  }

  /** Asks the operator's socket of the first replica. */
  operatorGet<T>(request: string): Promise<T> {
    return getUnixJson<T>(homePaths(this.homes[0] ?? '').adminSocket, request);
  }

  /** Ends everything and removes the data. */
  async close(): Promise<void> {
    this.#balancer?.close();
    for (const replica of this.replicas) await replica.end('SIGTERM');
    for (const [index, host] of this.hosts.entries()) {
      await host.end('SIGTERM');
      this.#endMachines(index + 1);
    }
    this.network.remove();
    for (const undo of this.#undo) undo();
    rmSync(this.folder, { recursive: true, force: true });
  }

  /** Ends the machines of a host whose agent has ended, and removes what they left in its namespace. */
  #endMachines(host: number): void {
    const module = path.join(CHECKOUT, 'packages/host-agent/src/remove-host.ts');
    const script = `import { removeHost } from '${module}'; await removeHost('${this.homeOfHost(host)}', true);`;
    const [program = '', ...args] = [...this.network.prefixOf(host), NODE, '--input-type=module', '-e', script];
    execFileSync(program, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  }

  async #startReplicas({ replicas, databaseUrl, hostLeaseSec, replicaEnv }: FleetOptions): Promise<void> {
    const secret = randomBytes(32).toString('hex');
    for (let at = 1; at <= replicas; at++) {
      const home = path.join(this.folder, `c${at}`);
      mkdirSync(path.join(home, 'run/control-plane'), { recursive: true });
      const [port = 0, metricsPort = 0] = await freePorts(2);
      const env = {
        ...process.env,
        SANDBAR_HOME: home,
        SANDBAR_LOCAL_HOST: '0',
        SANDBAR_LISTEN: `${this.network.controlAddress}:${port}`,
        SANDBAR_METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
        SANDBAR_DATABASE_URL: databaseUrl,
        SANDBAR_SECRET: secret,
        SANDBAR_HOST_LEASE_SEC: String(hostLeaseSec),
        SANDBAR_DRAIN_SEC: String(DRAIN_SEC),
        SANDBAR_SHUTDOWN_SEC: String(SHUTDOWN_SEC),
        SANDBAR_ALLOW_EMULATED_TENANTS: '1',
        SANDBAR_RATE_MUTATING: '1000/1000',
        SANDBAR_RATE_EXEC: '1000/1000',
        ...replicaEnv,
      };
      const command = [NODE, '--disable-warning=ExperimentalWarning', `${CHECKOUT}/packages/control-plane/src/main.ts`];
      const process_ = new Restartable(`replica ${at}`, command, env, path.join(this.folder, `c${at}.log`));
      const url = `http://${this.network.controlAddress}:${port}`;
      const replica = Object.assign(process_, { home, url, readyUrl: `http://127.0.0.1:${metricsPort}/readyz` });
      this.replicas.push(replica);
      await replica.start();
    }
    const targets = this.replicas.map(({ url, readyUrl }) => {
      const { hostname: host, port } = new URL(url);
      return { host, port: Number(port), readyUrl };
    });
    this.#balancer = await Balancer.start(targets);
  }

  async #joinHost(host: number, { agentEnv, prepareHome }: FleetOptions): Promise<void> {
    const home = this.homeOfHost(host);
    mkdirSync(home, { recursive: true });
    if (prepareHome) this.#undo.push(prepareHome(home));
    const pool = { SANDBAR_TEMPLATES: '1', SANDBAR_POOL_SIZE: '1' };
    const env = { ...process.env, SANDBAR_HOME: home, ...pool, ...agentEnv };
    const { token } = await this.operator('/admin/host-tokens', {});
    const address = `${this.network.addressOf(host)}:${AGENT_PORT}`;
    const inside = (command: readonly string[]) => [...this.network.prefixOf(host), ...command];
    const url = this.replicas[0]?.url ?? '';
    const join = ['host', 'join', '--url', url, '--token', String(token), '--address', address, '--name', `h${host}`];
    const [program = '', ...args] = inside([NODE, CLI, ...join]);
    execFileSync(program, args, { env, stdio: ['ignore', 'ignore', 'inherit'] });
    const command = [NODE, '--disable-warning=ExperimentalWarning', `${CHECKOUT}/packages/host-agent/src/main.ts`];
    const agent = new Restartable(`host ${host}`, inside(command), env, path.join(this.folder, `h${host}.log`));
    this.hosts.push(agent);
    await agent.start();
  }
}
