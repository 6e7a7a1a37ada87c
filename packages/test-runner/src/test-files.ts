// Decides which files are tests, in which groups they run, and how many at a time.
import { globSync } from 'node:fs';
import { availableParallelism } from 'node:os';

export type TestGroup = {
  name: string;
  files: string[];
  /** How many files of this group run at a time. */
  filesAtOnce: number;
};

/** For files that keep about one core busy: one fewer than there are cores, as node's runner does, but at least two. */
export const BUSY_FILES = Math.max(2, availableParallelism() - 1);
/** For files that mostly wait, for example for a machine to boot or for a time limit to pass. */
export const WAITING_FILES = availableParallelism() + 1;

/** Files that take minutes, mostly to build or download tools. They run only when a filter selects them. */
const LONG = /\.long\.test\.ts$/;

/**
 * Returns the paths of the test files, relative to the checkout and sorted. Without filters, all but the long ones. With
 * filters, all files whose path contains one of the filters.
 */
export function selectTestFiles(checkout: string, filters: readonly string[]): string[] {
  return globSync(['packages/**/*.test.ts', 'tests/**/*.test.ts'], {
    cwd: checkout,
    exclude: (name) => name.endsWith('node_modules'),
  })
    .filter((file) =>
      filters.length === 0 ? !LONG.test(file) : filters.some((filter) => file.includes(filter.replace(/^\.\//, ''))),
    )
    .sort();
}

/**
 * Returns the groups that have files, in the order in which they run. Most end-to-end files, and the browser files with
 * outages, run one at a time, because they kill or measure processes of the shared service. The end-to-end files in
 * `together/` do neither, so several run at a time. The conformance tests run alone at the end, because they put load
 * on the service, and other tests measure its memory and speed.
 */
export function groupTestFiles(files: readonly string[]): TestGroup[] {
  const folders = ['e2e/together', 'e2e', 'clients', 'browser/outages', 'browser', 'conformance'];
  // The innermost of `folders` that contains the file. Files outside these folders need no service.
  const folderOf = (file: string) => folders.find((folder) => file.startsWith(`tests/${folder}/`));
  const group = (name: string, folder: string | undefined, filesAtOnce: number): TestGroup => ({
    name,
    files: files.filter((file) => folderOf(file) === folder),
    filesAtOnce,
  });
  const groups = [
    group('node tests', undefined, WAITING_FILES),
    group('end-to-end tests', 'e2e', 1),
    group('end-to-end tests that share the service', 'e2e/together', BUSY_FILES),
    group('client tests', 'clients', BUSY_FILES),
    group('browser tests', 'browser', BUSY_FILES),
    group('browser tests with outages', 'browser/outages', 1),
    group('conformance tests', 'conformance', 1),
  ];
  return groups.filter(({ files }) => files.length > 0);
}
