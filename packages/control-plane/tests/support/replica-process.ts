// A replica as a process of its own, which a test stops and starts again at the same addresses.
import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Backend } from './balancer.ts';

const MAIN = new URL('../../src/main.ts', import.meta.url).pathname;

export class ReplicaProcess {
  readonly #env: Record<string, string>;
  #child: ChildProcess | undefined;
  #output = '';

  constructor({ port, metricsPort }: Backend, env: Record<string, string>) {
    this.#env = {
      PATH: process.env.PATH ?? '',
      SANDBAR_LISTEN: `127.0.0.1:${port}`,
      SANDBAR_METRICS_LISTEN: `127.0.0.1:${metricsPort}`,
      SANDBAR_SECRET: 'a secret of the tests that is long enough',
      ...env,
    };
  }

  get output(): string {
    return this.#output;
  }

  async start(): Promise<void> {
    const child = spawn(process.execPath, [MAIN], { stdio: ['ignore', 'pipe', 'pipe', 'ipc'], env: this.#env });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr]) {
      stream?.on('data', (data) => {
        this.#output += data;
      });
    }
    const ended = once(child, 'exit').then(() => ['it has ended']);
    const [message] = await Promise.race([once(child, 'message'), ended]);
    assert.deepEqual(message, { type: 'ready' }, this.#output);
  }

  /** Stops the process in order. Resolves with its exit code. */
  async stop(): Promise<number | null> {
    assert(this.#child);
    const exited = once(this.#child, 'exit');
    this.#child.kill('SIGTERM');
    const [code] = await exited;
    return code;
  }

  kill(): void {
    this.#child?.kill('SIGKILL');
  }
}
