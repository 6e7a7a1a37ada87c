// Keeps one nft process open, because creating a machine waits for its rule, and starting nft takes longer than the
// kernel's work. The session is only an optimisation: on failure the caller runs `nft -f` instead.
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';

/** The kernel answers in a millisecond. A session that needs longer than this is stuck. */
const ANSWER_TIMEOUT_MS = 1000;

export class NftSession {
  #child: ChildProcessWithoutNullStreams | undefined;
  #hasAnswered = false;
  /** Some builds of nft do not answer over a pipe. If the session never answered, it is not used again. */
  #isUsable = true;

  get isUsable(): boolean {
    return this.#isUsable;
  }

  /**
   * Runs a line as one transaction. Resolves when nft has printed all of `echoes`; none of them may occur in the line
   * itself. Run only one line at a time. Rejects when nft reports an error, ends, or does not answer within 1 s; the
   * line may or may not have taken effect then.
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

  /**
   * Returns the running nft, or starts one. An nft that ended is dropped at once, because waiting for its answer would
   * be in vain.
   */
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

/** Starts nft, which exits when its standard input closes, and so ends with the agent. */
function startNft(): ChildProcessWithoutNullStreams {
  // An interactive nft writes a history file to HOME and looks up TERM.
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
