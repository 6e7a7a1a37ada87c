// A handle of one job: its output, its stdin, and its end.
import type { Exec, OutputStream } from '@sandbar/contract/exec.ts';
import type { JobSignal } from '@sandbar/contract/exec-states.ts';
import { collectBytes } from './bytes.ts';
import type { CallOptions } from './call-options.ts';
import { ExecResult } from './exec-result.ts';
import type { Execs } from './execs.ts';
import type { JobStdin } from './job-stdin.ts';
import { mergeChunks, type OutputChunk } from './output-chunks.ts';

export type JobOutputOptions = CallOptions & {
  /** Read only this stream. Default: both streams, in the order in which their output arrives. */
  stream?: OutputStream | undefined;
  /** The position in `stream` of the first byte to read. Default: 0. Ignored without `stream`. */
  offset?: number | undefined;
};

export class Job {
  readonly machineId: string;
  readonly id: string;
  /** Use it only if the job was started with an open stdin. */
  readonly stdin: JobStdin;
  readonly #execs: Execs;

  constructor(execs: Execs, machineId: string, id: string, stdin: JobStdin) {
    this.#execs = execs;
    this.machineId = machineId;
    this.id = id;
    this.stdin = stdin;
  }

  /** Sends a signal to the first process of the job. Has no effect when the job has ended. */
  signal(name: JobSignal, call?: CallOptions): Promise<Exec> {
    return this.#execs.signal(this.machineId, this.id, name, call);
  }

  /**
   * Yields the output as the command writes it, until the job has ended. `offset` of a chunk is the position of its first
   * byte in its stream. After a broken connection it continues at the same byte. Throws OutputExpiredError and
   * ConnectionError, see {@link Execs.streamOutput}.
   */
  async *output({ stream, offset = 0, ...call }: JobOutputOptions = {}): AsyncGenerator<OutputChunk> {
    if (stream !== undefined) yield* this.#chunks(stream, offset, call);
    else yield* mergeChunks((signal) => this.#both({ ...call, signal }), call.signal);
  }

  /** Resolves when the job has ended. */
  wait(call?: CallOptions): Promise<Exec> {
    return this.#execs.wait(this.machineId, this.id, call);
  }

  /** Resolves when the job has ended, with its whole output. Throws JobLostError when its machine stopped or died. */
  async result(call: CallOptions = {}): Promise<ExecResult> {
    const [stdout, stderr] = await Promise.all([
      collectBytes(this.#execs.streamOutput(this.machineId, this.id, 'stdout', call)),
      collectBytes(this.#execs.streamOutput(this.machineId, this.id, 'stderr', call)),
    ]);
    return new ExecResult(await this.wait(call), stdout, stderr);
  }

  /** Ends every process of the job. */
  cancel(call?: CallOptions): Promise<Exec> {
    return this.#execs.cancel(this.machineId, this.id, call);
  }

  #both(call: CallOptions): AsyncGenerator<OutputChunk>[] {
    return [this.#chunks('stdout', 0, call), this.#chunks('stderr', 0, call)];
  }

  async *#chunks(stream: OutputStream, offset: number, call: CallOptions): AsyncGenerator<OutputChunk> {
    let position = offset;
    for await (const data of this.#execs.streamOutput(this.machineId, this.id, stream, { ...call, offset })) {
      yield { stream, offset: position, data };
      position += data.length;
    }
  }
}
