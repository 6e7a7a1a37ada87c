// The lines on the console by which the test inside the host tells the process outside how each part of the test ended.
// The console may put other text at the beginning of a line.
const MARK = 'kvm-test: ';

/** How one part ended. `skipped`: one line for each test that was skipped, with the reason. */
export type Outcome = { part: string; failure?: string; summary: string; skipped: string[] };

/** The line for the end of a part. */
export function outcomeLine(outcome: Outcome): string {
  return MARK + JSON.stringify(outcome);
}

/** Reads a line of the console. Returns undefined when the line does not have an outcome. */
export function outcomeOf(line: string): Outcome | undefined {
  const at = line.indexOf(MARK);
  if (at < 0) return undefined;
  try {
    return JSON.parse(line.slice(at + MARK.length)) as Outcome;
  } catch {
    // The kernel printed into this line. The part counts as not ended and is run again.
    return undefined;
  }
}
