// Reads the command line of `npm run chaos`.
import { randomInt } from 'node:crypto';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf, Problem } from '@sandbar/service/problem.ts';

export type ChaosArguments = { faults: number; seed: number; log: string };

const USAGE = `npm run chaos -- [OPTIONS]
  --faults N   how many faults (200)
  --seed N     chooses the faults, their moments and lengths, and the acts of the clients (random)
  --log FILE   the log (sandbar-chaos-SEED.log in the folder for temporary files)`;
const SEEDS = 1_000_000;

/** Reads the options. Throws `Problem` with the usage text when the command line is wrong. */
export function readChaosArguments(args: readonly string[]): ChaosArguments {
  const options = { faults: { type: 'string' }, seed: { type: 'string' }, log: { type: 'string' } } as const;
  try {
    const { values } = parseArgs({ args: [...args], options });
    const faults = readNumber('faults', values.faults ?? '200');
    const seed = readNumber('seed', values.seed ?? String(randomInt(1, SEEDS)));
    return { faults, seed, log: values.log ?? path.join(tmpdir(), `sandbar-chaos-${seed}.log`) };
  } catch (error) {
    throw new Problem(`${messageOf(error)}\n\n${USAGE}`);
  }
}

function readNumber(name: string, text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new Error(`--${name} must be a whole number of at least 1, not "${text}"`);
}
