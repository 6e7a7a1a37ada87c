// Runs the fuzzers of all parsers of untrusted bytes, one after the other, for minutes each. Prints how many inputs
// each parser got. At the first input that a parser handles wrongly, prints the seed, the number of the case and the
// smallest input that still fails, and exits with 1.
//   node_modules/node/bin/node bench/fuzz.ts --minutes 10 --only archives
import { parseArgs } from 'node:util';
import { messageOf, Problem } from '@sandbar/service/problem.ts';
import { fuzzArchives } from '../packages/host-agent/tests/support/fuzz-archives.ts';
import { fuzzFrames } from '../packages/host-agent/tests/support/fuzz-frames.ts';
import { fuzzHttp2Frames } from '../packages/host-agent/tests/support/fuzz-http2-frames.ts';
import { fuzzManifests } from '../packages/host-agent/tests/support/fuzz-manifests.ts';
import { fuzzNames } from '../packages/host-agent/tests/support/fuzz-names.ts';
import { Finding, type Fuzzer, forSeconds } from '../packages/host-agent/tests/support/fuzzing.ts';

const FUZZERS: Readonly<Record<string, Fuzzer>> = {
  archives: fuzzArchives,
  manifests: fuzzManifests,
  names: fuzzNames,
  frames: fuzzFrames,
  'http2-frames': fuzzHttp2Frames,
};

const USAGE = `bench/fuzz.ts [OPTIONS]
  --minutes N   how long each fuzzer runs (10)
  --seed N      chooses the inputs (1)
  --only NAME   one fuzzer: ${Object.keys(FUZZERS).join(', ')}`;

function readArguments(args: readonly string[]) {
  const options = { minutes: { type: 'string' }, seed: { type: 'string' }, only: { type: 'string' } } as const;
  try {
    const { minutes = '10', seed = '1', only } = parseArgs({ args: [...args], options }).values;
    if (!/^\d{1,4}(\.\d+)?$/.test(minutes)) throw new Error(`--minutes must be a number, not "${minutes}"`);
    if (!/^\d{1,9}$/.test(seed)) throw new Error(`--seed must be a whole number, not "${seed}"`);
    const chosen = Object.entries(FUZZERS).filter(([name]) => only === undefined || name === only);
    if (chosen.length === 0) throw new Error(`there is no fuzzer "${only}"`);
    return { minutes: Number(minutes), seed: Number(seed), chosen };
  } catch (error) {
    throw new Problem(`${messageOf(error)}\n\n${USAGE}`);
  }
}

async function main(args: readonly string[]): Promise<void> {
  const { minutes, seed, chosen } = readArguments(args);
  for (const [name, fuzz] of chosen) {
    console.log(`${name}: ${minutes} minutes with seed ${seed}`);
    const figures = await fuzz({ seed, until: forSeconds(minutes * 60) });
    console.log(`${name}: no finding, ${JSON.stringify(figures)}`);
  }
}

process.exitCode = await main(process.argv.slice(2)).then(
  () => 0,
  (error: unknown) => {
    const isPlain = error instanceof Finding || error instanceof Problem;
    console.error(isPlain ? error.message : error);
    return 1;
  },
);
