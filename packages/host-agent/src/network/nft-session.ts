// One nft that stays open, because a create waits for its rule and starting the program costs more than the kernel's
// work. It is only a fast way: whoever uses it has the plain way, `nft -f`, for when it fails.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';

/** The kernel answers in a millisecond; a session that takes this long is stuck. */
const ANSWER_TIMEOUT_MS = 1000;

export class NftSession {
  #child: ChildProcessWithoutNullStreams | undefined;
  #hasAnswered = false;
  /** Not every build of nft can be talked to over a pipe. One that never answered is not asked again. */
  #isUsable = true;

  get isUsable(): boolean {
    return this.#isUsable;
  }

  /**
   * Runs a line as one transaction; resolves when the kernel has reported all of `echoes`, which must not occur in the
   * line. One at a time. Rejects when nft complains, ends or stays silent; whether it was done is then unknown.
   */
  async run(line: string, echoes: readonly string[]): Promise<void> {
    try {
      await exchange(this.#open(), line, echoes);
      this.#hasAnswered = true;
    } catch (error) {
      this.close();
      this.#isUsable = this.#hasAnswered;
      throw error;
    }
  }

  /** One that has ended is forgotten right then: it would be waited for in vain. */
  #open(): ChildProcessWithoutNullStreams {
    if (this.#child) return this.#child;
    const child = startNft();
    child.on('close', () => {
      if (this.#child === child) this.#child = undefined;
    });
    this.#child = child;
    return child;
  }

  close(): void {
    this.#child?.kill();
    this.#child = undefined;
  }
}

/** It ends by itself when its input does, so with the agent. */
function startNft(): ChildProcessWithoutNullStreams {
  // An interactive nft would keep a history in HOME and look TERM up.
  const env = { PATH: process.env.PATH, HOME: '/nonexistent', TERM: 'dumb' };
  const child = spawn('nft', ['--echo', '--interactive'], { stdio: 'pipe', env });
  child.on('error', () => {});
  child.stdin.on('error', () => {});
  child.unref();
  for (const pipe of [child.stdin, child.stdout, child.stderr]) {
    if ('unref' in pipe && typeof pipe.unref === 'function') pipe.unref();
  }
  return child;
}

function exchange(child: ChildProcessWithoutNullStreams, line: string, echoes: readonly string[]): Promise<void> {
  return new Promise((resolve, reject) => {
    let said = '';
    let complaint = '';
    const end = (error?: Error) => {
      clearTimeout(timer);
      child.stdout.off('data', onAnswer);
      child.stderr.off('data', onComplaint);
      child.off('close', onClose);
      if (error) reject(error);
      else resolve();
    };
    const onAnswer = (chunk: Buffer) => {
      said += chunk;
      if (echoes.every((echo) => said.includes(echo))) end();
    };
    const onComplaint = (chunk: Buffer) => {
      complaint += chunk;
      if (complaint.includes('Error:')) end(new Error(`nft complains: ${complaint.trim()}`));
    };
    const onClose = () => end(new Error(`nft ended: ${complaint.trim()}`));
    const timer = setTimeout(() => end(new Error('nft does not answer')), ANSWER_TIMEOUT_MS);
    child.stdout.on('data', onAnswer);
    child.stderr.on('data', onComplaint);
    child.on('close', onClose);
    child.stdin.write(line);
  });
}
