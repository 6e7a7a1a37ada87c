// Reads the command line of `npm run test:fleet`.
import { tmpdir } from 'node:os';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { messageOf, Problem } from '@sandbar/service/problem.ts';

export type FleetArguments = { minutes: number; seed: number; log: string };

const USAGE = `npm run test:fleet -- [OPTIONS]
  --minutes N  how long replicas are killed under load (5)
  --seed N     chooses victims, moments and the acts of the clients (1)
  --log FILE   the log (sandbar-fleet-SEED.log in the folder for temporary files)`;

/** Reads the options. Throws `Problem` with the usage text when the command line is wrong. */
export function readFleetArguments(args: readonly string[]): FleetArguments {
  const options = { minutes: { type: 'string' }, seed: { type: 'string' }, log: { type: 'string' } } as const;
  try {
    const { values } = parseArgs({ args: [...args], options });
    const minutes = readNumber('minutes', values.minutes ?? '5');
    const seed = readNumber('seed', values.seed ?? '1');
    return { minutes, seed, log: values.log ?? path.join(tmpdir(), `sandbar-fleet-${seed}.log`) };
  } catch (error) {
    throw new Problem(`${messageOf(error)}\n\n${USAGE}`);
  }
}

function readNumber(name: string, text: string): number {
  if (/^[1-9]\d{0,8}$/.test(text)) return Number(text);
  throw new Error(`--${name} must be a whole number of at least 1, not "${text}"`);
}
