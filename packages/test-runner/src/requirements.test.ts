// Tests that every requirement id (such as CTL-3) in the repository is explained in docs/requirements.md. Otherwise a
// reader cannot know what the id means.
import assert from 'node:assert/strict';
import { existsSync, globSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { it } from 'node:test';

const CHECKOUT = path.resolve(import.meta.dirname, '../../..');
const ID = /\b(?!UTF-|ECMA-)[A-Z]{2,4}-\d{1,2}\b/g;
const ROW = /^\| (?<id>[A-Z]{2,4}-\d{1,2}) \| (?<text>.+) \| (?<tests>.+) \|$/gm;

const read = (file: string) => readFileSync(path.join(CHECKOUT, file), 'utf8');
const table = [...read('docs/requirements.md').matchAll(ROW)].map((match) => match.groups ?? {});
const sources = globSync(['{packages,tests,guest-agent,bench,scripts,images}/**/*.{ts,mjs,go,md}', '*.md'], {
  cwd: CHECKOUT,
  exclude: (name) => name.endsWith('node_modules'),
});

it('the table of requirements has every id that a source file uses, and each id once', () => {
  const known = table.map(({ id }) => id);
  assert.deepEqual(known, [...new Set(known)]);
  const unknown = sources.flatMap((file) =>
    (read(file).match(ID) ?? []).filter((id) => !known.includes(id)).map((id) => `${file}: ${id}`),
  );
  assert.deepEqual(unknown, []);
});

it('every file that the table of requirements names exists', () => {
  const files = table.flatMap(({ tests = '' }) => [...tests.matchAll(/`([^`]+)`/g)].map((match) => match[1] ?? ''));
  assert(files.length > 0);
  assert.deepEqual(
    files.filter((file) => !existsSync(path.join(CHECKOUT, file))),
    [],
  );
});

it('the name of a test begins with its behaviour, not with an id', () => {
  const first = new RegExp(`\\b(?:it|test|describe)\\(\\s*['"\`]${ID.source}`);
  assert.deepEqual(
    sources.filter((file) => /\.(ts|mjs)$/.test(file) && first.test(read(file))),
    [],
  );
});
