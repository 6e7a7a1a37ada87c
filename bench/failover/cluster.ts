// A PostgreSQL cluster under Patroni on this computer: one etcd and two nodes or more, with strict synchronous
// replication, so that no commit is acknowledged before another node has it. All of it is on loopback, in one folder.
import { type ChildProcess, execFileSync, spawn } from 'node:child_process';
import { chmodSync, chownSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { freePort } from '../../packages/control-plane/tests/support/free-ports.ts';

const require = createRequire(new URL('../../packages/control-plane/package.json', import.meta.url));
const pg: typeof import('pg') = require('pg');

export type Node = { name: string; port: number; restPort: number; config: string; process: ChildProcess | undefined };

/** The shortest time to live of the leader's lock that Patroni allows, in seconds. A standby waits for its end. */
const TTL_SEC = 20;
const BIN = '/usr/lib/postgresql/15/bin';
const LOCAL = '127.0.0.1';

export class PatroniCluster {
  readonly nodes: Node[] = [];
  readonly #folder = mkdtempSync(join(tmpdir(), 'sandbar-failover-'));
  readonly #others: ChildProcess[] = [];
  readonly #user = process.getuid?.() === 0 ? ids('postgres') : undefined;

  /** Starts the cluster. Returns when commits are replicated. */
  async start(count: number): Promise<void> {
    chmodSync(this.#folder, 0o755);
    if (this.#user) chownSync(this.#folder, this.#user.uid, this.#user.gid);
    const [client, peer] = [await freePort(), await freePort()];
    const etcd = `http://${LOCAL}:${client}`;
    const peerUrl = `http://${LOCAL}:${peer}`;
    this.#others.push(
      this.#launch('etcd', 'etcd', [
        ...['--name', 'one', '--data-dir', join(this.#folder, 'etcd'), '--log-level', 'error'],
        ...['--listen-client-urls', etcd, '--advertise-client-urls', etcd],
        ...['--listen-peer-urls', peerUrl, '--initial-advertise-peer-urls', peerUrl],
        ...['--initial-cluster', `one=${peerUrl}`],
      ]),
    );
    for (let number = 1; number <= count; number++) {
      const node = { name: `node${number}`, port: await freePort(), restPort: await freePort() };
      const config = join(this.#folder, `${node.name}.yml`);
      const data = join(this.#folder, node.name);
      writeFileSync(config, JSON.stringify(patroniConfig(node, data, this.#folder, `${LOCAL}:${client}`), null, 2));
      this.nodes.push({ ...node, config, process: undefined });
    }
    for (const node of this.nodes) {
      this.launchNode(node);
      // The first node makes the cluster, and the others copy it.
      if (node === this.nodes[0]) await this.until(async () => (await this.leader()) === node, 'the first node leads');
    }
    await this.untilReplicated();
  }

  launchNode(node: Node): void {
    node.process = this.#launch('patroni', node.name, [node.config]);
  }

  /** The URL of a database of the cluster, with all nodes. */
  url(database: string): string {
    const hosts = this.nodes.map(({ port }) => `${LOCAL}:${port}`).join(',');
    return `postgres://postgres:postgres@${hosts}/${database}?target_session_attrs=read-write`;
  }

  async leader(): Promise<Node | undefined> {
    for (const node of this.nodes) {
      const status = await fetch(`http://${LOCAL}:${node.restPort}/primary`).then(
        (response) => response.status,
        () => 0,
      );
      if (status === 200) return node;
    }
    return undefined;
  }

  /** Ends Patroni and PostgreSQL of a node with SIGKILL. */
  kill(node: Node): void {
    const postmaster = readFileSync(join(this.#folder, node.name, 'postmaster.pid'), 'utf8').split('\n')[0];
    node.process?.kill('SIGKILL');
    for (const pid of descendants(Number(postmaster))) killIfAlive(pid);
    node.process = undefined;
  }

  /** Waits until every node but the leader follows it, and one of them synchronously. */
  async untilReplicated(): Promise<void> {
    await this.until(async () => {
      const leader = await this.leader();
      if (!leader) return false;
      const rows = await this.query(leader, `select sync_state from pg_stat_replication where state = 'streaming'`);
      return rows.length === this.nodes.length - 1 && rows.some(({ sync_state }) => sync_state === 'sync');
    }, 'commits are replicated');
  }

  async query(node: Node, text: string, timeoutMs = 2_000): Promise<Record<string, unknown>[]> {
    const client = new pg.Client({
      ...{ host: LOCAL, port: node.port, user: 'postgres', password: 'postgres', database: 'postgres' },
      connectionTimeoutMillis: timeoutMs,
      query_timeout: timeoutMs,
    });
    client.on('error', () => undefined);
    try {
      await client.connect();
      return (await client.query(text)).rows;
    } finally {
      client.end().catch(() => undefined);
    }
  }

  /** Ends all processes and removes the folder. */
  async close(): Promise<void> {
    for (const node of this.nodes) {
      try {
        if (node.process) this.kill(node);
      } catch {
        // It has not got as far as starting PostgreSQL.
        node.process?.kill('SIGKILL');
      }
    }
    for (const child of this.#others) child.kill('SIGKILL');
    await delay(500);
    rmSync(this.#folder, { recursive: true, force: true, maxRetries: 5 });
  }

  async until(condition: () => Promise<boolean>, what: string, timeoutMs = 120_000): Promise<void> {
    const deadline = performance.now() + timeoutMs;
    while (!(await condition().catch(() => false))) {
      if (performance.now() > deadline) throw new Error(`Waited in vain until ${what}; logs are in ${this.#folder}.`);
      await delay(100);
    }
  }

  #launch(program: string, name: string, args: string[]): ChildProcess {
    const log = openSync(join(this.#folder, `${name}.log`), 'a');
    const [command, all] = this.#user
      ? ['setpriv', [`--reuid=${this.#user.uid}`, `--regid=${this.#user.gid}`, '--clear-groups', program, ...args]]
      : [program, args];
    mkdirSync(join(this.#folder, 'etc'), { recursive: true });
    const env = { PATH: `${BIN}:/usr/bin:/bin`, HOME: this.#folder, LC_ALL: 'C', TZ: 'UTC' };
    return spawn(command as string, all as string[], { stdio: ['ignore', log, log], env, cwd: this.#folder });
  }
}

/** Patroni reads YAML, of which JSON is a part. */
function patroniConfig(node: Omit<Node, 'config' | 'process'>, data: string, sockets: string, etcd: string) {
  const login = (username: string) => ({ username, password: 'postgres' });
  const dcs = {
    ...{ ttl: TTL_SEC, loop_wait: 2, retry_timeout: 5, maximum_lag_on_failover: 1_048_576, primary_start_timeout: 0 },
    ...{ synchronous_mode: true, synchronous_mode_strict: true },
    postgresql: { use_pg_rewind: true, parameters: { max_connections: 200, wal_log_hints: 'on' } },
  };
  return {
    ...{ scope: 'sandbar', name: node.name },
    restapi: { listen: `${LOCAL}:${node.restPort}`, connect_address: `${LOCAL}:${node.restPort}` },
    etcd3: { hosts: etcd },
    bootstrap: { dcs, initdb: [{ encoding: 'UTF8' }, { locale: 'C' }, 'data-checksums'] },
    postgresql: {
      ...{ listen: `${LOCAL}:${node.port}`, connect_address: `${LOCAL}:${node.port}`, data_dir: data, bin_dir: BIN },
      authentication: { superuser: login('postgres'), replication: login('replicator'), rewind: login('rewinder') },
      pg_hba: ['host all all 127.0.0.1/32 md5', 'host replication replicator 127.0.0.1/32 md5', 'local all all trust'],
      parameters: { unix_socket_directories: sockets },
      use_unix_socket: true,
    },
    watchdog: { mode: 'off' },
  };
}

const ids = (user: string) => {
  const read = (option: string) => Number(execFileSync('id', [option, user], { encoding: 'utf8' }));
  return { uid: read('-u'), gid: read('-g') };
};

function descendants(pid: number): number[] {
  const children = readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').trim();
  return [pid, ...children.split(' ').filter(Boolean).map(Number)];
}

function killIfAlive(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch (error) {
    if (!(error instanceof Error && 'code' in error && error.code === 'ESRCH')) throw error;
  }
}
