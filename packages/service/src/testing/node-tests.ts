// Runs node's own test runner over a list of files.
import { spawn } from 'node:child_process';
import { stripVTControlCharacters } from 'node:util';

/** The lines by which the runner closes: what was run and how it went. */
const SUMMARY = /^ℹ (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) /;
/** After them it repeats the tests that failed, each with its error. */
const FAILURES = '✖ failing tests:';

export type NodeTestResult = {
  exitCode: number;
  /** The closing lines, for whoever reads only the end of the output. */
  summary: string;
  /** Each test that failed, with its error; empty when none did. */
  failures: string;
};

export type NodeTestOptions = {
  env: NodeJS.ProcessEnv;
  /** An abort ends the run. */
  signal: AbortSignal;
  /** One file at a time, not one a core. */
  isAlone: boolean;
  /** Gets the output as it comes. */
  show: (text: string) => void;
};

export async function runNodeTests(
  checkout: string,
  files: readonly string[],
  { env, signal, isAlone, show }: NodeTestOptions,
): Promise<NodeTestResult> {
  const concurrency = isAlone ? ['--test-concurrency=1'] : [];
  const child = spawn(process.execPath, ['--test', '--test-reporter=spec', ...concurrency, ...files], {
    cwd: checkout,
    env: { ...env, NODE_OPTIONS: '', ...(process.stdout.isTTY ? { FORCE_COLOR: '1' } : {}) },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  signal.addEventListener('abort', () => child.kill('SIGTERM'), { once: true });
  let rest = '';
  const summary: string[] = [];
  const failures: string[] = [];
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    show(text);
    const lines = (rest + text).split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines.map(stripVTControlCharacters)) {
      if (failures.length > 0 || line === FAILURES) failures.push(line);
      else if (SUMMARY.test(line)) summary.push(line);
    }
  });
  const exitCode = await new Promise<number>((resolve, reject) => {
    child.once('error', reject);
    child.once('close', (code) => resolve(code ?? 1));
  });
  return { exitCode, summary: summary.join('\n'), failures: failures.join('\n') };
}
