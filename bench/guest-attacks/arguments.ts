// Reads the command line of `bench/guest-attacks.ts`.
import { parseArgs } from 'node:util';
import { messageOf, Problem } from '@sandbar/service/problem.ts';

export type AttackArguments = {
  /** Runs only attacks whose name contains this text, and the baselines that they are compared with. */
  only: string;
  /** For how many milliseconds the victim's requests are measured before, during and after each attack. */
  before: number;
  during: number;
  after: number;
  /** Runs only one attack of each group. */
  isQuick: boolean;
};

const USAGE = `bench/guest-attacks.ts [OPTIONS]
  --quick        one attack of each group, and short measurements
  --only TEXT    only attacks whose name contains TEXT
  --seconds N    how long each attack is measured (6)`;

/** Reads the options. Throws `Problem` with the usage text when the command line is wrong. */
export function readAttackArguments(args: readonly string[]): AttackArguments {
  const options = { quick: { type: 'boolean' }, only: { type: 'string' }, seconds: { type: 'string' } } as const;
  try {
    const { values } = parseArgs({ args: [...args], options });
    const isQuick = values.quick ?? false;
    const seconds = values.seconds ?? (isQuick ? '4' : '6');
    if (!/^[1-9]\d{0,3}$/.test(seconds)) throw new Error(`--seconds must be a whole number, not "${seconds}"`);
    const during = Number(seconds) * 1000;
    return { only: values.only ?? '', isQuick, during, before: isQuick ? 2000 : 3000, after: isQuick ? 1000 : 2000 };
  } catch (error) {
    throw new Problem(`${messageOf(error)}\n\n${USAGE}`);
  }
}
