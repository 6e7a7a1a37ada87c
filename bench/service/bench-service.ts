// Runs the service that the benchmark measures, in a new data directory that is removed at the end. Restarts it with
// other settings when a section needs another mode.
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { readConfig, type ServiceConfig } from '@sandbar/service/config.ts';
import type { Progress } from '@sandbar/service/progress.ts';
import { type RunningService, startService } from '@sandbar/service/service.ts';
import { setUp } from '@sandbar/service/setup/setup.ts';
import { describeLeaks, listTaps } from '@sandbar/test-runner/leaks.ts';
import { freePorts } from '../../packages/control-plane/tests/support/free-ports.ts';
import { waitForFullPool } from './host-info.ts';

/** How the service starts machines. `pool`: takes a waiting clone. `template`: restores a clone. `cold`: boots. */
export const MODES = ['pool', 'template', 'cold'] as const;
export type Mode = (typeof MODES)[number];

/** Environment variables that the service of the benchmark must not inherit from the caller. */
const NOT_INHERITED = ['BASE_URL', 'API_KEY', 'LISTEN', 'METRICS_LISTEN', 'DATABASE_URL', 'SECRET', 'POOL_SIZE'].map(
  (name) => `SANDBAR_${name}`,
);
/** Rate limits so high that they refuse nothing. They stay on, because checking them is part of the measured time. */
const RATE = '1000/1000';
/**
 * A create from a template is at least this many times faster than a cold boot. If none of `ALIKE_CREATES` creates is
 * that much faster than the slowest, the template existed from the start or will never exist.
 */
const TEMPLATE_SPEEDUP = 2;
const ALIKE_CREATES = 8;

export type ModeService = {
  mode: Mode;
  sandbar: Client;
  paths: ReturnType<typeof homePaths>;
  credentials: RunningService['credentials'];
};

export class BenchService {
  readonly config: ServiceConfig;
  readonly #poolSize: number;
  readonly #progress: Progress;
  readonly #signal: AbortSignal;
  readonly #tapsBefore = listTaps();
  #user: Awaited<ReturnType<typeof setUp>>['user'];
  #running: { service: RunningService; of: ModeService } | undefined;
  /** Whether the wait for the template is over. One wait is enough, because the data directory keeps the template. */
  #hasWaitedForTemplate = false;

  private constructor(config: ServiceConfig, poolSize: number, progress: Progress, signal: AbortSignal) {
    this.config = config;
    this.#poolSize = poolSize;
    this.#progress = progress;
    this.#signal = signal;
  }

  /** Makes the data directory and installs what this computer lacks. Does not start the service yet. */
  static async prepare(poolSize: number, progress: Progress, signal: AbortSignal): Promise<BenchService> {
    const env = Object.fromEntries(Object.entries(process.env).filter(([name]) => !NOT_INHERITED.includes(name)));
    const home = await mkdtemp(path.join(tmpdir(), 'sandbar-bench-service-'));
    const [port = 0, metricsPort = 0] = await freePorts(2);
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

  /** Starts the service in this mode, if needed. Resolves when its pool is full, or its template exists. */
  async in(mode: Mode): Promise<ModeService> {
    if (this.#running?.of.mode === mode) return this.#running.of;
    await this.stop();
    try {
      return await this.#start(mode);
    } catch (error) {
      // Stop it, so that the next section in this mode can start it again.
      await this.stop();
      throw error;
    }
  }

  /** Destroys all machines and stops the service. The data directory stays for the next mode. */
  async stop(hurry?: AbortSignal): Promise<void> {
    const running = this.#running;
    this.#running = undefined;
    if (running === undefined) return;
    await destroyAll(running.of.sandbar).catch((error: unknown) => this.#progress.say(`  ! ${String(error)}`));
    await running.service.stop(hurry);
  }

  /**
   * Destroys the machines that a failed section has left. If that fails, stops the service, so that the next section
   * starts it again.
   */
  async clear(): Promise<void> {
    const running = this.#running;
    if (running !== undefined) await destroyAll(running.of.sandbar).catch(() => this.stop());
  }

  /** Removes the data directory. Returns one line for each thing that the service has left on this computer. */
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
    const sandbar = new Client({ baseUrl, apiKey });
    const paths = homePaths(config.home);
    const of = { mode, sandbar, paths, credentials: service.credentials };
    this.#running = { service, of };
    // The first request of each kind is slower, because code and caches are loaded, so make it before the measurement.
    await warmUp(sandbar);
    if (mode === 'pool') await this.#progress.step('pool', () => waitForFullPool(paths.hostAgentSocket));
    if (mode === 'template') await this.#progress.step('template', () => this.#waitForTemplate(sandbar));
    return of;
  }

  /**
   * Creates machines until a create is much faster than the slowest one, which means that the template exists. Gives up
   * after `ALIKE_CREATES` creates.
   */
  async #waitForTemplate(sandbar: Client): Promise<void> {
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

/** Creates a machine, runs a job, reads its output and destroys the machine, to warm up all code paths. */
async function warmUp(sandbar: Client): Promise<void> {
  const { id } = await sandbar.machines.create();
  const job = await sandbar.execs.start(id, { command: 'echo hi' });
  await sandbar.execs.wait(id, job.id);
  await sandbar.execs.output(id, job.id);
  await sandbar.machines.destroy(id);
}

/** Destroys every machine of the account, because a failed step may have left some. */
async function destroyAll(sandbar: Client): Promise<void> {
  const machines = await sandbar.machines.list();
  await Promise.all(machines.map(({ id }) => sandbar.machines.destroy(id)));
}
