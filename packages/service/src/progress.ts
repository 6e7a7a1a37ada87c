// Shows the progress of set-up and start: a line when a step is done, and a line while a step takes long.

/** A step that takes longer than this also gets a line while it runs. */
const SHOWN_AFTER_MS = 200;

/** Reports what a step is doing right now, in a few words. */
export type Say = (what: string) => void;

export interface Progress {
  /** Runs a step and shows its name and time. Throws what the step throws. */
  step<T>(name: string, run: (say: Say) => Promise<T>): Promise<T>;
  /** Shows a line. */
  say(line: string): void;
}

/** Progress as lines of plain text; a terminal gets a little colour. */
export function lineProgress(write: (text: string) => void, isTerminal: boolean): Progress {
  const paint = (code: number, text: string) => (isTerminal ? `\u001b[${code}m${text}\u001b[0m` : text);
  return {
    say: (line) => write(`${line}\n`),
    async step(name, run) {
      const started = performance.now();
      let isAnnounced = false;
      const announce = (what: string) => {
        isAnnounced = true;
        write(`  ${paint(33, '…')} ${name}${what === '' ? '' : `: ${what}`}\n`);
      };
      const timer = setTimeout(() => isAnnounced || announce(''), SHOWN_AFTER_MS);
      try {
        const result = await run(announce);
        write(`  ${paint(32, '✓')} ${name} ${paint(2, `(${formatDuration(performance.now() - started)})`)}\n`);
        return result;
      } catch (error) {
        write(`  ${paint(31, '✗')} ${name}\n`);
        throw error;
      } finally {
        clearTimeout(timer);
      }
    },
  };
}

/** No output at all, for tests. */
export const silentProgress: Progress = {
  say: () => {},
  step: (_name, run) => run(() => {}),
};

/** `35 ms`, `2.3 s`. */
export function formatDuration(milliseconds: number): string {
  return milliseconds < 1000 ? `${Math.round(milliseconds)} ms` : `${(milliseconds / 1000).toFixed(1)} s`;
}
