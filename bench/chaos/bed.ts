// The service of a run, all of it real: PostgreSQL, two replicas of the control plane behind a balancer, and one host
// in a network namespace with a small disk. Each of the three has a clock that can be stepped. There is one host, so
// that the load can use volumes and snapshots of any machine.
import { chmodSync, cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { readConfig } from '@sandbar/service/config.ts';
import type { Progress } from '@sandbar/service/progress.ts';
import { setUp } from '@sandbar/service/setup/setup.ts';
import { startTestPostgres, type TestPostgres } from '@sandbar/test-runner/test-postgres.ts';
import { Fleet } from '../../tests/fleet/bed/fleet.ts';
import type { Restartable } from '../../tests/fleet/bed/processes.ts';
import { Clock, ensureFaketime, listClockMemory, removeClockMemory } from './clock.ts';
import { SmallDisk } from './disk.ts';

const REPLICAS = 2;
const DISK_MIB = 3_072;
/** What the host agent keeps free of guests. The default would be most of the small disk. */
const RESERVE_MIB = 128;
/** Longer than every cut of the network, so that no machine is given up. */
const HOST_LEASE_SEC = 120;

export class ChaosBed {
  readonly fleet: Fleet;
  readonly postgres: TestPostgres;
  readonly disk: SmallDisk;
  readonly clocks: readonly Clock[];
  /** The number of the only host. */
  readonly host = 1;
  readonly #folder: string;
  readonly #clockMemory: readonly string[];

  static async start(progress: Progress): Promise<ChaosBed> {
    // Every user can read in the folder of the clocks, because PostgreSQL runs as another one.
    const folder = mkdtempSync('/tmp/sbch-');
    chmodSync(folder, 0o755);
    const config = readConfig({ ...process.env, SANDBAR_HOME: path.join(folder, 'd') }, 0);
    const { user } = await setUp(config, progress);
    await ensureFaketime(progress);
    const clockMemory = listClockMemory();
    const [ofPostgres, ofReplicas, ofAgent] = ['PostgreSQL', 'control planes', 'host agent'].map(
      (of) => new Clock(of, folder),
    ) as [Clock, Clock, Clock];
    ofReplicas.check();
    const postgres = await progress.step('PostgreSQL', () => startTestPostgres(config, user, ofPostgres.env));
    const made: SmallDisk[] = [];
    const prepareHome = (home: string) => {
      const disk = new SmallDisk(path.join(folder, 'disk'), home, DISK_MIB);
      made.push(disk);
      return () => disk.remove();
    };
    try {
      const fleet = await progress.step(`a host and ${REPLICAS} replicas`, () =>
        Fleet.start({
          hosts: 1,
          replicas: REPLICAS,
          databaseUrl: postgres.url,
          hostLeaseSec: HOST_LEASE_SEC,
          replicaEnv: { ...ofReplicas.envOfNode, SANDBAR_DISK_OVERCOMMIT: '1000' },
          agentEnv: { ...ofAgent.envOfNode, SANDBAR_DISK_RESERVE_MB: String(RESERVE_MIB) },
          prepareHome,
        }),
      );
      const [disk] = made;
      if (disk === undefined) throw new Error('the host has no disk of its own');
      return new ChaosBed(fleet, postgres, disk, [ofPostgres, ofReplicas, ofAgent], folder, clockMemory);
    } catch (error) {
      await postgres.stop();
      rmSync(folder, { recursive: true, force: true });
      throw error;
    }
  }

  private constructor(
    fleet: Fleet,
    postgres: TestPostgres,
    disk: SmallDisk,
    clocks: readonly Clock[],
    folder: string,
    clockMemory: readonly string[],
  ) {
    this.fleet = fleet;
    this.postgres = postgres;
    this.disk = disk;
    this.clocks = clocks;
    this.#folder = folder;
    this.#clockMemory = clockMemory;
  }

  get agent(): Restartable {
    const [agent] = this.fleet.hosts;
    if (agent === undefined) throw new Error('there is no host');
    return agent;
  }

  get hostHome(): string {
    return this.fleet.homeOfHost(this.host);
  }

  /** Copies the logs of all processes to a folder. */
  keepLogs(to: string): void {
    mkdirSync(to, { recursive: true });
    for (const name of readdirSync(this.fleet.folder).filter((one) => one.endsWith('.log'))) {
      cpSync(path.join(this.fleet.folder, name), path.join(to, name));
    }
    const { logs } = homePaths(path.join(this.#folder, 'd', 'pg'));
    cpSync(logs, path.join(to, 'postgres'), { recursive: true });
  }

  /** Ends everything and removes all data. Returns a line for each process that is left. */
  async close(): Promise<string[]> {
    await this.fleet.close();
    await this.postgres.stop();
    removeClockMemory(this.#clockMemory);
    rmSync(this.#folder, { recursive: true, force: true });
    return [this.fleet.folder, this.#folder].flatMap(findProcesses);
  }
}

/** The processes whose command line names a folder. */
function findProcesses(folder: string): string[] {
  return readdirSync('/proc').flatMap((pid) => {
    if (!/^\d+$/.test(pid)) return [];
    try {
      const command = readFileSync(`/proc/${pid}/cmdline`, 'utf8').replaceAll('\0', ' ');
      return command.includes(folder) ? [`process ${pid}: ${command}`] : [];
    } catch {
      return []; // It has ended.
    }
  });
}
