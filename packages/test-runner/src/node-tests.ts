// Runs test files with node's test runner, each in its own process. From the runner's events it collects what `npm
// test` prints at the end: which tests failed and why, and how long each file took.
import path from 'node:path';
import { run } from 'node:test';
import { spec } from 'node:test/reporters';
import { inspect } from 'node:util';
import { limitFile } from './file-limit.ts';

export type NodeTestResult = {
  hasPassed: boolean;
  /** One line with the numbers of tests that passed, failed and so on. */
  summary: string;
  /** The file, name and error of each failed test, and the name of each file that ran no test. */
  failures: string[];
  /** How long the process of each file took, in milliseconds. */
  durations: ReadonlyMap<string, number>;
};

export type NodeTestOptions = {
  /** The complete environment of the test processes. */
  env: NodeJS.ProcessEnv;
  /** Aborting it ends the test processes. */
  signal: AbortSignal;
  /** How many files run at a time. */
  filesAtOnce: number;
  /** Called with the output of node's `spec` reporter while the tests run. */
  show: (text: string) => void;
};

/**
 * How long a file may take, in milliseconds. The slowest file takes much less, even on two busy cores. A file that
 * takes longer hangs, so its process is killed, and the run goes on.
 */
const FILE_LIMIT_MS = 600_000;

/**
 * Runs `files`, whose paths are relative to `checkout`. When the signal is aborted, rejects with its reason. Must not
 * be called inside a test of node's runner, which cannot run itself recursively.
 */
export async function runNodeTests(
  checkout: string,
  files: readonly string[],
  { env, signal, filesAtOnce, show }: NodeTestOptions,
): Promise<NodeTestResult> {
  const results = new Results(checkout);
  const limits = new Map<string, () => void>();
  const events = run({
    cwd: checkout,
    files: files.map((file) => path.join(checkout, file)),
    concurrency: filesAtOnce,
    isolation: 'process',
    signal,
    env: { ...env, NODE_OPTIONS: '', ...(process.stdout.isTTY ? { FORCE_COLOR: '1' } : {}) },
  })
    .on('test:enqueue', (test) => results.addName(test))
    .on('test:pass', (test) => results.addEnd(test))
    .on('test:fail', (test) => {
      results.addEnd(test);
      results.addFailure(test);
    })
    .on('test:dequeue', ({ entryFile, name }: Test) => {
      if (entryFile === undefined) limits.set(name, limitFile(name, FILE_LIMIT_MS));
    })
    .on('test:complete', (test: EndedTest) => {
      if (test.entryFile === undefined) limits.get(test.name)?.();
      results.addDuration(test);
    })
    .on('test:stderr', ({ file, message }) => results.addOutput(file, message))
    .on('test:diagnostic', ({ file, message }) => results.addOutput(file, `${message}\n`))
    .on('test:summary', (summary) => results.addSummary(summary));
  for await (const text of events.compose(new spec())) show(String(text));
  signal.throwIfAborted();
  return results.read(files);
}

/** If the process of a file fails, this many characters from the end of its output are shown. */
const SHOWN_OUTPUT = 2000;

type Test = {
  name: string;
  testId: number;
  parentId: number | undefined;
  file?: string;
  line?: number;
  /** The test file whose process sent the event. An event about the file as a whole has no entryFile. */
  entryFile?: string;
};
type EndedTest = Test & { details: { duration_ms: number; type?: 'suite' | 'test' }; skip?: string | boolean };
type FailedTest = Test & { details: { error: TestError }; todo?: string | boolean };
/**
 * An error event of node. `cause` is what the test threw. If the process of a file failed, `exitCode` or `signal` is
 * set.
 */
type TestError = Error & { failureType?: string; exitCode?: number | null; signal?: string | null };
type Counts = { tests: number; passed: number; cancelled: number; skipped: number; todo: number };

/** Collects the results of one run from its events. */
class Results {
  readonly #checkout: string;
  /** The name and parent of each test. The key is the file and the test's id in that file's process. */
  readonly #names = new Map<string, { name: string; parentId: number | undefined }>();
  /** The files that ran or skipped at least one test. */
  readonly #tested = new Set<string>();
  readonly #failedFiles = new Set<string>();
  readonly #failures: string[] = [];
  /** The end of the standard error output of each file's process, including node's diagnostics. */
  readonly #outputs = new Map<string, string>();
  readonly #durations = new Map<string, number>();
  #counts: Counts | undefined;
  #isSuccess = false;

  constructor(checkout: string) {
    this.#checkout = checkout;
  }

  addName({ entryFile, testId, name, parentId }: Test): void {
    if (entryFile !== undefined) this.#names.set(`${entryFile} ${testId}`, { name, parentId });
  }

  /**
   * Notes that a file has a test. A suite does not count as a test, because it may be empty. But a skipped suite
   * counts, because its tests are left out on purpose.
   */
  addEnd({ entryFile, details, skip }: EndedTest): void {
    const isTest = details.type !== 'suite' || skip !== undefined;
    if (entryFile !== undefined && isTest) this.#tested.add(this.#shorten(entryFile));
  }

  addOutput(file: string | undefined, text: string): void {
    if (file === undefined) return;
    const name = this.#shorten(file);
    this.#outputs.set(name, `${this.#outputs.get(name) ?? ''}${text}`.slice(-SHOWN_OUTPUT));
  }

  addFailure(test: FailedTest): void {
    const { error } = test.details;
    // Ignore the failure of a test marked as todo, which may fail. Ignore the failure of a suite, because the failed
    // test in it is reported.
    if (test.todo !== undefined || error.failureType === 'subtestsFailed') return;
    if (test.entryFile === undefined) {
      const file = this.#shorten(test.name);
      this.#failedFiles.add(file);
      this.#failures.push(`✖ ${file}: ${describeEnd(error)}\n${indent(this.#outputs.get(file) ?? '')}`.trimEnd());
    } else {
      const place = `${this.#shorten(test.file ?? test.entryFile)}:${test.line}`;
      const thrown = inspect(error.cause ?? error, { colors: process.stdout.isTTY });
      this.#failures.push(`✖ ${place} ${this.#fullName(test)}\n${indent(thrown)}`);
    }
  }

  addDuration({ entryFile, name, details }: EndedTest): void {
    if (entryFile === undefined) this.#durations.set(this.#shorten(name), details.duration_ms);
  }

  /** Stores the totals. Only the event without a file has the totals of the whole run. */
  addSummary({ file, success, counts }: { file?: string | undefined; success: boolean; counts: Counts }): void {
    if (file !== undefined) return;
    this.#isSuccess = success;
    this.#counts = counts;
  }

  read(files: readonly string[]): NodeTestResult {
    const untested = files.filter((file) => !this.#tested.has(file) && !this.#failedFiles.has(file));
    const failures = [...this.#failures, ...untested.map((file) => `✖ ${file}: the file ran no test`)];
    return {
      hasPassed: this.#isSuccess && failures.length === 0,
      summary: this.#counts === undefined ? 'no results' : describeCounts(this.#counts),
      failures,
      durations: this.#durations,
    };
  }

  /** Returns the names of the suites around a test, followed by the test's own name. */
  #fullName(test: Test): string {
    const names = [test.name];
    const parentOf = (id: number | undefined) => this.#names.get(`${test.entryFile} ${id}`);
    for (let parent = parentOf(test.parentId); parent !== undefined; parent = parentOf(parent.parentId))
      names.unshift(parent.name);
    return names.join(' > ');
  }

  #shorten(file: string): string {
    return path.relative(this.#checkout, file);
  }
}

function describeEnd({ exitCode, signal, cause, message }: TestError): string {
  if (typeof signal === 'string') return `its process was ended by ${signal}`;
  if (typeof exitCode === 'number') return `its process ended with exit code ${exitCode}`;
  return cause instanceof Error ? cause.message : message;
}

function describeCounts({ tests, passed, cancelled, skipped, todo }: Counts): string {
  const failed = tests - passed - cancelled - skipped - todo;
  const parts = { passed, failed, cancelled, skipped, 'to do': todo };
  const named = Object.entries(parts).flatMap(([name, count]) => (count > 0 ? [`${count} ${name}`] : []));
  return `${tests} tests: ${named.join(', ')}`;
}

function indent(text: string): string {
  return text.replace(/^/gm, '  ');
}
