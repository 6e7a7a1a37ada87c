// Keeps a child process of the agent running: starts it again when it ends.
import type { ChildProcess } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';

/** A process that ends sooner counts as a failed start, and the pause before the next start grows. */
const LASTING_MS = 2000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 5000;
/** How many characters of a process's latest stderr output are kept to explain its end. */
const MAX_LAST_WORDS = 2000;

/**
 * Calls `live` again and again until `closing` aborts. `live` runs one process to its end, and returns why it ended.
 * `onEnd` is told the reason, unless the process ended because of `closing`.
 */
export async function keepRunning(
  live: () => Promise<string>,
  onEnd: (why: string) => void,
  closing: AbortSignal,
): Promise<void> {
  let pauseMs = 0;
  while (!closing.aborted) {
    const startedAt = performance.now();
    const why = await live();
    if (closing.aborted) return;
    onEnd(why);
    const didLast = performance.now() - startedAt > LASTING_MS;
    pauseMs = didLast ? 0 : Math.min(Math.max(pauseMs * 2, FIRST_PAUSE_MS), LONGEST_PAUSE_MS);
    await delay(pauseMs, undefined, { signal: closing }).catch(() => {});
  }
}

/** Resolves when the process has ended and its pipes are closed. Returns the reason and the last stderr output. */
export function endOf(child: ChildProcess): Promise<string> {
  let lastWords = '';
  child.stderr?.setEncoding('utf8').on('data', (text: string) => {
    lastWords = (lastWords + text).slice(-MAX_LAST_WORDS);
  });
  return new Promise((resolve) => {
    child.once('error', (error) => resolve(error.message));
    child.once('close', (code, signal) => resolve(`${signal ?? `exit code ${code}`} ${lastWords.trim()}`.trim()));
  });
}
