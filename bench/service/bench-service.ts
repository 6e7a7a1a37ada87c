// The service under measurement: of its own, in a data directory that is empty at first and gone afterwards, started again
// with other settings where a section needs them.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { Sandbar } from '@sandbar/sdk/client.ts';
import { readConfig, type ServiceConfig } from '@sandbar/service/config.ts';
import type { Progress } from '@sandbar/service/progress.ts';
import { type RunningService, startService } from '@sandbar/service/service.ts';
import { setUp } from '@sandbar/service/setup/setup.ts';
import { findFreePorts } from '@sandbar/service/supervise/ports.ts';
import { describeLeaks, listTaps } from '@sandbar/test-runner/leaks.ts';
import { waitForFullPool } from './host-info.ts';

/** `pool`: clones wait. `template`: each create restores one. `cold`: each create boots. */
export const MODES = ['pool', 'template', 'cold'] as const;
export type Mode = (typeof MODES)[number];

/** The caller's own settings that a benchmark must not take over. */
const NOT_INHERITED = ['BASE_URL', 'API_KEY', 'LISTEN', 'METRICS_LISTEN', 'DATABASE_URL', 'SECRET', 'POOL_SIZE'].map(
  (name) => `SANDBAR_${name}`,
);
/** The limits stay in force, which costs what it costs, but refuse nothing. */
const RATE = '1000/1000';
/** A template makes creates at least this much faster; after so many creates that are alike it is there, or never comes. */
const TEMPLATE_SPEEDUP = 2;
const ALIKE_CREATES = 8;

export type ModeService = { mode: Mode; sandbar: Sandbar; paths: ReturnType<typeof homePaths> };

export class BenchService {
  readonly config: ServiceConfig;
  readonly #poolSize: number;
  readonly #progress: Progress;
  readonly #signal: AbortSignal;
  readonly #tapsBefore = listTaps();
  #user: Awaited<ReturnType<typeof setUp>>['user'];
  #running: { service: RunningService; of: ModeService } | undefined;
  /** Set when the templates of this data directory were waited for. */
  #hasWaitedForTemplate = false;

  private constructor(config: ServiceConfig, poolSize: number, progress: Progress, signal: AbortSignal) {
    this.config = config;
    this.#poolSize = poolSize;
    this.#progress = progress;
    this.#signal = signal;
  }

  /** Makes the data directory and what the machine lacks; starts nothing yet. */
  static async prepare(poolSize: number, progress: Progress, signal: AbortSignal): Promise<BenchService> {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !NOT_INHERITED.includes(name)));
    const home = await mkdtemp(path.join(tmpdir(), 'sandbar-bench-service-'));
    const [port = 0, metricsPort = 0] = await findFreePorts(2);
    const config: ServiceConfig = {
      ...readConfig({ ...env, SANDBAR_HOME: home }, process.getuid?.() ?? -1),
      listen: { host: '127.0.0.1', port },
      metricsListen: { host: '127.0.0.1', port: metricsPort },
    };
    const bench = new BenchService(config, poolSize, progress, signal);
    try {
      bench.#user = (await setUp(config, progress)).user;
      return bench;
    } catch (error) {
      await bench.remove();
      throw error;
    }
  }

  /** The service in this mode, ready for the first figure: its pool is full, or its template there. */
  async in(mode: Mode): Promise<ModeService> {
    if (this.#running?.of.mode === mode) return this.#running.of;
    await this.stop();
    try {
      return await this.#start(mode);
    } catch (error) {
      // The next section that wants it tries again.
      await this.stop();
      throw error;
    }
  }

  /** Ends machines and processes; the data directory stays for the next mode. */
  async stop(hurry?: AbortSignal): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    if (running === undefined) return;
    await destroyAll(running.of.sandbar).catch((error: unknown) => this.#progress.say(`  ! ${String(error)}`));
    await running.service.stop(hurry);
  }

  /** Destroys the machines that a section left when it broke off; a service that cannot do it is started anew. */
  async clear(): Promise<void> {
    const running = this.#running;
    if (running !== undefined) await destroyAll(running.of.sandbar).catch(() => this.stop());
  }

  /** Removes the data directory. Returns a line for each thing that the service left on this machine. */
  async remove(): Promise<string[]> {
    const leaks = describeLeaks(this.config.home, this.#tapsBefore);
    await rm(this.config.home, { recursive: true, force: true });
    return leaks;
  }

  async #start(mode: Mode): Promise<ModeService> {
    this.#progress.say(`Service: ${mode}`);
    const settings: Record<Mode, Record<string, string>> = {
      pool: { SANDBAR_POOL_SIZE: String(this.#poolSize) },
      template: { SANDBAR_POOL_SIZE: '0' },
      cold: { SANDBAR_POOL_SIZE: '0', SANDBAR_TEMPLATES: '0' },
    };
    const env = {
      ...this.config.env,
      SANDBAR_RATE_MUTATING: RATE,
      SANDBAR_RATE_EXEC: RATE,
      SANDBAR_LOG_LEVEL: 'info',
      ...settings[mode],
    };
    const config = { ...this.config, env };
    const service = await startService({ config, user: this.#user, progress: this.#progress, signal: this.#signal });
    const { base_url: baseUrl, api_key: apiKey } = service.credentials;
    const sandbar = new Sandbar({ baseUrl, apiKey });
    const paths = homePaths(config.home);
    const of = { mode, sandbar, paths };
    this.#running = { service, of };
    // What is loaded with the first request of each kind is not what a figure is about.
    await warmUp(sandbar);
    if (mode === 'pool') await this.#progress.step('pool', () => waitForFullPool(paths.hostAgentSocket));
    if (mode === 'template') await this.#progress.step('template', () => this.#waitForTemplate(sandbar));
    return of;
  }

  /** A template is there when creates have become much faster than the slowest one; without templates they never do. */
  async #waitForTemplate(sandbar: Sandbar): Promise<void> {
    if (this.#hasWaitedForTemplate) return;
    this.#hasWaitedForTemplate = true;
    let slowest = 0;
    for (let creates = 0; creates < ALIKE_CREATES; creates++) {
      this.#signal.throwIfAborted();
      const began = performance.now();
      const { id } = await sandbar.machines.create();
      const took = performance.now() - began;
      await sandbar.machines.destroy(id);
      slowest = Math.max(slowest, took);
      if (took * TEMPLATE_SPEEDUP < slowest) return;
    }
    this.#progress.say('  ! creates did not become faster: there was a template from the start, or there is none');
  }
}

/** One machine, one job, its output: every path of the code once. */
async function warmUp(sandbar: Sandbar): Promise<void> {
  const { id } = await sandbar.machines.create();
  const job = await sandbar.execs.start(id, { command: 'echo hi' });
  await sandbar.execs.wait(id, job.id);
  await sandbar.execs.output(id, job.id);
  await sandbar.machines.destroy(id);
}

/** Destroys every machine of the account; a step that broke may have left some. */
async function destroyAll(sandbar: Sandbar): Promise<void> {
  const machines = await sandbar.machines.list();
  await Promise.all(machines.map(({ id }) => sandbar.machines.destroy(id)));
}
