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
 * Returns the groups that have files, in the order in which they run. End-to-end files and browser files with outages
 * run one at a time, because they kill the processes that all of them use. The conformance tests run last and
 * separately: they put load on the service, and other tests measure its memory and speed.
 */
export function groupTestFiles(files: readonly string[]): TestGroup[] {
  const isBelow = (folder: string) => (file: string) => file.startsWith(`tests/${folder}/`);
  const [isConformance, isEndToEnd, isBrowser] = [isBelow('conformance'), isBelow('e2e'), isBelow('browser')];
  const [isClient, isOutage] = [isBelow('clients'), isBelow('browser/outages')];
  const needsNoService = (file: string) =>
    [isConformance, isEndToEnd, isClient, isBrowser].every((isInGroup) => !isInGroup(file));
  const groups: TestGroup[] = [
    { name: 'node tests', files: files.filter(needsNoService), isAlone: false },
    { name: 'end-to-end tests', files: files.filter(isEndToEnd), isAlone: true },
    { name: 'client tests', files: files.filter(isClient), isAlone: false },
    { name: 'browser tests', files: files.filter((file) => isBrowser(file) && !isOutage(file)), isAlone: false },
    { name: 'browser tests with outages', files: files.filter(isOutage), isAlone: true },
    { name: 'conformance tests', files: files.filter(isConformance), isAlone: false },
  ];
  return groups.filter((group) => group.files.length > 0);
}
