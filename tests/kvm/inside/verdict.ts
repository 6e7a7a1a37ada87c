// How the test in the host tells the one outside how it went: a line on the console, which may have anything before it.
const MARK = 'kvm-test: ';

/** The line for a test that passed, or failed for a reason. */
export function verdictLine(failure?: string): string {
  return `${MARK}${failure === undefined ? 'passed' : `failed: ${failure.replaceAll(/\s+/g, ' ')}`}`;
}

/** `passed`, the reason of a failure, or undefined for any other line. */
export function verdictOf(line: string): string | undefined {
  const at = line.indexOf(MARK);
  return at < 0 ? undefined : line.slice(at + MARK.length);
}
