// Starts and ends the processes of the fleet test: agents and replicas. Each writes a log file.
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';

/** A process that can be killed and started again with the same arguments. */
export class Restartable {
  readonly name: string;
  readonly #command: readonly string[];
  readonly #env: NodeJS.ProcessEnv;
  readonly #log: string;
  #child: ChildProcess | undefined;

  constructor(name: string, command: readonly string[], env: NodeJS.ProcessEnv, log: string) {
    this.name = name;
    this.#command = command;
    this.#env = env;
    this.#log = log;
  }

  /** Starts the process, and resolves when it says over its channel that it is ready. Rejects when it ends first. */
  async start(): Promise<void> {
    const [program = '', ...args] = this.#command;
    const out = openSync(this.#log, 'a');
    const child = spawn(program, args, { env: this.#env, stdio: ['ignore', out, out, 'ipc'], cwd: '/' });
    this.#child = child;
    const ready = Promise.withResolvers<void>();
    child.on('message', (message: { type?: string; reason?: string }) => {
      if (message.type === 'ready') ready.resolve();
      if (message.type === 'failed') ready.reject(new Error(`${this.name}: ${message.reason}`));
    });
    child.once('error', ready.reject);
    child.once('exit', (code, signal) => {
      ready.reject(new Error(`${this.name} ended with ${code ?? signal}; its log is ${this.#log}`));
    });
    await ready.promise;
  }

  /** Sends a signal and waits for the end of the process. Does nothing when it has ended. */
  async end(signal: NodeJS.Signals): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  }
}
