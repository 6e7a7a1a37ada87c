// Fuzzes the parsers of imported images for half a minute each, with another seed in each run. A failure prints its
// seed. bench/fuzz.ts runs the same fuzzers for longer.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { fuzzArchives } from './support/fuzz-archives.ts';
import { fuzzManifests } from './support/fuzz-manifests.ts';
import { forSeconds } from './support/fuzzing.ts';

const SECONDS = 30;
const options = () => ({ seed: randomInt(1e9), until: forSeconds(SECONDS) });

test('umoci finds the same entries as the check in whatever archive the check accepts (RES-12)', async () => {
  const { cases, accepted, unpacked } = await fuzzArchives(options());
  // If the check accepted fewer archives, the fuzzer would compare hardly anything.
  assert.ok(accepted > cases / 100, `${accepted} of ${cases}`);
  if (process.getuid?.() === 0) assert.ok(unpacked > 0);
});

test('every reference, index, manifest and configuration is read as something valid or refused (RES-12)', async () => {
  const { cases, accepted } = await fuzzManifests(options());
  assert.ok(accepted > cases / 100, `${accepted} of ${cases}`);
});
