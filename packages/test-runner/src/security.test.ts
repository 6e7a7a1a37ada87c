// Tests that docs/security.md names only tests that exist, and that each row of its tables of threats names a test.
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { it } from 'node:test';

const CHECKOUT = path.resolve(import.meta.dirname, '../../..');
const text = readFileSync(path.join(CHECKOUT, 'docs/security.md'), 'utf8');
/** Matches a row of the tables with the columns "what must not happen", "what holds it" and "shown by". */
const ROW = /^\| (?!what must|---)(?<threat>[^|]+) \| (?<holds>[^|]+) \| (?<tests>[^|]*`[^|]*) \|$/gm;

it('every test that the page about security names exists', () => {
  const named = [...text.matchAll(/`([^`\s]+(?:\.test\.ts|_test\.go))`/g)].map((match) => match[1] ?? '');
  assert(named.length > 0);
  assert.deepEqual(
    named.filter((file) => !existsSync(path.join(CHECKOUT, file))),
    [],
  );
});

it('every attack on the page about security names a test', () => {
  const sections = text.split(/^## /m).filter((section) => section.includes('| what must not happen |'));
  assert(sections.length > 0);
  for (const section of sections) {
    const [title] = section.split('\n');
    const rows = section.split('\n').filter((line) => line.startsWith('| ')).length - 1;
    assert.equal([...section.matchAll(ROW)].length, rows, title);
  }
});
