// The test inside the host reports its result to the process outside as a line on the console. The console may put
// other text at the beginning of that line.
const MARK = 'kvm-test: ';

/** The line for a test that passed, or that failed with `failure` as its reason. */
export function verdictLine(failure?: string): string {
  return `${MARK}${failure === undefined ? 'passed' : `failed: ${failure.replaceAll(/\s+/g, ' ')}`}`;
}

/** Reads a line of the console: `passed`, `failed: REASON`, or undefined when the line is no verdict. */
export function verdictOf(line: string): string | undefined {
  const at = line.indexOf(MARK);
  return at < 0 ? undefined : line.slice(at + MARK.length);
}
