// Reads the command line of `bench/kills.ts`.
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf, Problem } from '@sandbar/service/problem.ts';

export type KillsArguments = { kills: number; seed: number; log: string };

const USAGE = `bench/kills.ts [OPTIONS]
  --kills N    how many kills (200)
  --seed N     chooses victims, moments and the acts of the clients (1)
  --log FILE   the log (sandbar-kills-SEED.log in the folder for temporary files)`;

/** Reads the options. Throws `Problem` with the usage text when the command line is wrong. */
export function readKillsArguments(args: readonly string[]): KillsArguments {
  const options = { kills: { type: 'string' }, seed: { type: 'string' }, log: { type: 'string' } } as const;
  try {
    const { values } = parseArgs({ args: [...args], options });
    const kills = readNumber('kills', values.kills ?? '200');
    const seed = readNumber('seed', values.seed ?? '1');
    return { kills, seed, log: values.log ?? path.join(tmpdir(), `sandbar-kills-${seed}.log`) };
  } catch (error) {
    throw new Problem(`${messageOf(error)}\n\n${USAGE}`);
  }
}

function readNumber(name: string, text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new Error(`--${name} must be a whole number of at least 1, not "${text}"`);
}
