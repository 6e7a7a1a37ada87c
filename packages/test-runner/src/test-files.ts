// Decides which files are tests, and in which groups they run.
import { globSync } from 'node:fs';

export type TestGroup = {
  name: string;
  files: string[];
  /** Whether the files of this group run one at a time. */
  isAlone: boolean;
};

/** Files that take minutes, most of it for tools that they build or download. They run when a filter selects them. */
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
 * Returns the groups that have files, in the order in which they run. Most end-to-end files and the browser files with
 * outages run one at a time, because they kill the processes that all of them use or measure these. The end-to-end files
 * in `together/` do neither, so several run at a time. The conformance tests run last and separately: they put load on
 * the service, and other tests measure its memory and speed.
 */
export function groupTestFiles(files: readonly string[]): TestGroup[] {
  const folders = ['e2e/together', 'e2e', 'clients', 'browser/outages', 'browser', 'conformance'];
  // The innermost of `folders` that has the file. Other files need no service.
  const folderOf = (file: string) => folders.find((folder) => file.startsWith(`tests/${folder}/`));
  const group = (name: string, folder: string | undefined, isAlone = false): TestGroup => ({
    name,
    files: files.filter((file) => folderOf(file) === folder),
    isAlone,
  });
  const groups = [
    group('node tests', undefined),
    group('end-to-end tests', 'e2e', true),
    group('end-to-end tests that share the service', 'e2e/together'),
    group('client tests', 'clients'),
    group('browser tests', 'browser'),
    group('browser tests with outages', 'browser/outages', true),
    group('conformance tests', 'conformance'),
  ];
  return groups.filter(({ files }) => files.length > 0);
}
