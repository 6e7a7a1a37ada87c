// Fuzzes the reader of a guest's frames for half a minute, and for a few seconds the parser of the output of older
// guests, with another seed in each run. A failure prints its seed.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import { test } from 'node:test';
import { fuzzFrames } from './support/fuzz-frames.ts';
import { fuzzHttp2Frames } from './support/fuzz-http2-frames.ts';
import { forSeconds } from './support/fuzzing.ts';

for (const { what, fuzz, seconds } of [
  { what: 'the frames of a session', fuzz: fuzzFrames, seconds: 30 },
  { what: 'the output of an older guest agent', fuzz: fuzzHttp2Frames, seconds: 5 },
]) {
  test(`${what} is read in the same way however it is cut, or refused (RES-6, ISO-10)`, async () => {
    const { cases, accepted } = await fuzz({ seed: randomInt(1e9), until: forSeconds(seconds) });
    // If the reader accepted fewer inputs, the fuzzer would compare hardly anything.
    assert.ok(accepted > cases / 100, `${accepted} of ${cases}`);
  });
}
