// Which files are tests.
import { globSync } from 'node:fs';

/** Test files below the checkout, relative and sorted; with filters, those whose path contains one of them. */
export function selectTestFiles(checkout: string, filters: readonly string[]): string[] {
  return globSync(['packages/**/*.test.ts', 'tests/**/*.test.ts'], {
    cwd: checkout,
    exclude: (name) => name.endsWith('node_modules'),
  })
    .filter((file) => filters.length === 0 || filters.some((filter) => file.includes(filter.replace(/^\.\//, ''))))
    .sort();
}
