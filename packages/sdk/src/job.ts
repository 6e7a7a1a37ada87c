// A handle of one job: what a program needs that drives a REPL or a language server in a machine.
import type { Exec, OutputStream } from '@sandbar/contract/exec.ts';
import type { JobSignal } from '@sandbar/contract/exec-states.ts';
import type { Execs, StreamOptions } from './execs.ts';
import type { JobStdin } from './job-stdin.ts';
import type { CallOptions } from './machines.ts';

export class Job {
  readonly machineId: string;
  readonly id: string;
  /** Only for a job that was started with an open stdin. */
  readonly stdin: JobStdin;
  readonly #execs: Execs;

  constructor(execs: Execs, machineId: string, id: string, stdin: JobStdin) {
    this.#execs = execs;
    this.machineId = machineId;
    this.id = id;
    this.stdin = stdin;
  }

  /** Sends a signal to the first process of the job. Has no effect when the job has ended. */
  signal(name: JobSignal, options?: CallOptions): Promise<Exec> {
    return this.#execs.signal(this.machineId, this.id, name, options);
  }

  /** Yields the bytes of a stream as the command writes them, see {@link Execs.streamOutput}. */
  output(stream: OutputStream, options?: StreamOptions): AsyncGenerator<Uint8Array> {
    return this.#execs.streamOutput(this.machineId, this.id, stream, options);
  }

  /** Resolves when the job has ended. */
  wait(options?: CallOptions): Promise<Exec> {
    return this.#execs.wait(this.machineId, this.id, options);
  }

  /** Ends every process of the job. */
  cancel(options?: CallOptions): Promise<Exec> {
    return this.#execs.cancel(this.machineId, this.id, options);
  }
}
