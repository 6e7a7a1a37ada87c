// Runs the host agent as a process in a temporary folder, with real QEMU VMs. Tests send requests to its socket, as the
// control plane does. Needs root and the base image.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { closeSync, existsSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { homePaths } from '@sandbar/contract/home.ts';
import type { JobReport, MachineReport, MachineVolume, StartJob } from '@sandbar/contract/host-api.ts';
import { Client } from 'undici';

const MAIN = join(import.meta.dirname, '../../src/main.ts');

export type Answer<T> = { status: number; body: T & { code?: string; detail?: string } };
type Method = 'GET' | 'PUT' | 'POST' | 'DELETE';
export type MachineSize = { memory_mb?: number };

export class AgentProcess {
  readonly home: string;
  readonly paths: ReturnType<typeof homePaths>;
  readonly #env: Record<string, string>;
  #child: ChildProcess | undefined;
  #generation = 0;

  /**
   * `env` is added to the agent's environment. By default, machines boot cold and the disk has no reserve. `parent` is
   * the folder in which the temporary folder is made.
   */
  constructor(env: Record<string, string> = {}, parent = tmpdir()) {
    this.home = mkdtempSync(join(parent, 'sandbar-agent-'));
    this.paths = homePaths(this.home);
    this.#env = { SANDBAR_TEMPLATES: '0', SANDBAR_POOL_SIZE: '0', SANDBAR_DISK_RESERVE_MB: '0', ...env };
  }

  /** Starts an agent and waits until it answers. */
  async start(): Promise<void> {
    const child = this.launch();
    const [message] = await Promise.race([once(child, 'message'), once(child, 'exit')]);
    assert.deepEqual(message, { type: 'ready' }, this.log());
  }

  /** Starts an agent without waiting. */
  launch(): ChildProcess {
    const log = openSync(join(this.home, 'agent.log'), 'a');
    const child = spawn(process.execPath, [MAIN], {
      env: {
        PATH: process.env.PATH ?? '',
        ...(process.env.SANDBAR_CACHE ? { SANDBAR_CACHE: process.env.SANDBAR_CACHE } : {}),
        SANDBAR_HOME: this.home,
        SANDBAR_ACCELERATOR: 'tcg',
        SANDBAR_BOOT_PATIENCE_MS: '32000',
        ...this.#env,
      },
      stdio: ['ignore', log, log, 'ipc'],
    });
    closeSync(log);
    this.#child = child;
    return child;
  }

  /** Kills the agent with SIGKILL. Its machines go on running. */
  async kill(): Promise<void> {
    const child = this.#child;
    this.#child = undefined;
    if (!child || child.exitCode !== null) return;
    child.kill('SIGKILL');
    await once(child, 'exit');
  }

  log(): string {
    return readFileSync(join(this.home, 'agent.log'), 'utf8').slice(-20_000);
  }

  /** Ends the machines and the agent, and removes all files. */
  async close(): Promise<void> {
    if (!this.#child) await this.start();
    const { body } = await this.call<{ machines: MachineReport[] }>('GET', '/v1/machines');
    for (const { machine_id } of body.machines) await this.destroy(machine_id);
    const child = this.#child;
    child?.kill('SIGTERM');
    if (child && child.exitCode === null) await once(child, 'exit');
    rmSync(this.home, { recursive: true, force: true });
  }

  async call<T>(method: Method, path: string, body?: unknown): Promise<Answer<T>> {
    const content =
      body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } };
    const dispatcher = new Client('http://localhost', {
      socketPath: this.paths.hostAgentSocket,
      headersTimeout: 0,
      bodyTimeout: 0,
    });
    try {
      const answer = await dispatcher.request({ method, path, ...content });
      const text = await answer.body.text();
      const isJson = /json/.test(String(answer.headers['content-type']));
      return { status: answer.statusCode, body: isJson ? JSON.parse(text) : text };
    } finally {
      await dispatcher.destroy();
    }
  }

  /** Sends a request like {@link call}, and fails the test when the agent refuses it. */
  async done<T>(method: Method, path: string, body?: unknown): Promise<T> {
    const answer = await this.call<T>(method, path, body);
    assert.ok(answer.status < 300, `${method} ${path}: ${JSON.stringify(answer)}\n${this.log()}`);
    return answer.body;
  }

  /** Asks the agent for a machine with these volumes, running or stopped. */
  ensure(id: string, desired: 'running' | 'stopped', volumes: readonly MachineVolume[], size: MachineSize = {}) {
    const spec = {
      vcpus: 1,
      memory_mb: 256,
      rootfs_size_gb: 2,
      stack: 'base',
      hostname: 'machine',
      ...size,
    };
    const generation = ++this.#generation;
    return this.call<MachineReport>('PUT', `/v1/machines/${id}`, { generation, desired, spec, volumes });
  }

  async run(id: string, volumes: readonly MachineVolume[] = [], size: MachineSize = {}): Promise<void> {
    const answer = await this.ensure(id, 'running', volumes, size);
    assert.equal(answer.body.status, 'running', `${JSON.stringify(answer)}\n${this.log()}`);
  }

  async stop(id: string, volumes: readonly MachineVolume[] = []): Promise<void> {
    const answer = await this.ensure(id, 'stopped', volumes);
    assert.equal(answer.body.status, 'stopped', JSON.stringify(answer));
  }

  async destroy(id: string): Promise<void> {
    await this.done('DELETE', `/v1/machines/${id}?generation=${++this.#generation}`);
  }

  /**
   * Runs a command in the machine and returns its standard output and standard error. Fails the test when the exit code
   * is not 0.
   */
  async exec(id: string, command: string): Promise<string> {
    const path = `/v1/machines/${id}/jobs/${randomUUID()}`;
    await this.#startJob(id, path, { command, merge_output: true, timeout_sec: 60 });
    const { exit_code } = await this.done<JobReport>('GET', `${path}?wait_ms=60000`);
    const output = await this.done<string>('GET', `${path}/output?stream=stdout&offset=0&limit=1000000&wait_ms=0`);
    assert.equal(exit_code, 0, `${command}: ${output}`);
    return output;
  }

  /** Starts a command without waiting for its end. */
  async begin(id: string, command: string): Promise<void> {
    await this.#startJob(id, `/v1/machines/${id}/jobs/${randomUUID()}`, { command, timeout_sec: 600 });
  }

  async #startJob(id: string, path: string, job: Omit<StartJob, 'generation'>): Promise<void> {
    const { generation } = await this.done<MachineReport>('GET', `/v1/machines/${id}`);
    await this.done('PUT', path, { ...job, generation } satisfies StartJob);
  }

  runDirOf(id: string): string {
    return join(this.paths.runMachines, id);
  }

  /** Returns the pid of the machine's QEMU, or NaN when there is none. */
  pidOf(id: string): number {
    const path = join(this.runDirOf(id), 'qemu.pid');
    return existsSync(path) ? Number(readFileSync(path, 'utf8')) : Number.NaN;
  }

  /** Whether the machine's QEMU was restored from a template. */
  isClone(id: string): boolean {
    return readFileSync(`/proc/${this.pidOf(id)}/cmdline`, 'utf8').includes('\0-incoming\0');
  }

  async statusOf(id: string): Promise<MachineReport> {
    return this.done<MachineReport>('GET', `/v1/machines/${id}`);
  }

  /** Returns the findings of the host's audit. */
  async findings(): Promise<unknown[]> {
    return (await this.done<{ findings: unknown[] }>('GET', '/v1/audit')).findings;
  }

  /** Whether the agent's log reports a new template. */
  hasTemplate(): boolean {
    return this.log().includes('template made');
  }
}
