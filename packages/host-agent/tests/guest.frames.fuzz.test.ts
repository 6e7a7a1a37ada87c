// Fuzzes the parser of a guest's frames for half a minute, with another seed in each run. A failure prints its seed.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { fuzzFrames } from './support/fuzz-frames.ts';
import { forSeconds } from './support/fuzzing.ts';

const SECONDS = 30;

test('the frames of a stream are read in the same way however it is cut, or refused (RES-6, ISO-10)', async () => {
  const { cases, accepted } = await fuzzFrames({ seed: randomInt(1e9), until: forSeconds(SECONDS) });
  // If the parser accepted fewer streams, the fuzzer would compare hardly anything.
  assert.ok(accepted > cases / 100, `${accepted} of ${cases}`);
});
