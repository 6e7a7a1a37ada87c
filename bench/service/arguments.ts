// Reads the command line of `npm run bench`: which sections run, and how many repetitions. A quick run only shows that
// everything works; it has too few repetitions for reliable figures.
import { parseArgs } from 'node:util';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import { messageOf, Problem } from '@sandbar/service/problem.ts';

export const SECTIONS = [
  'gvisor',
  'restore',
  'create',
  'exec',
  'burst',
  'boots',
  'idle',
  'many',
  'kill',
  'volumes',
  'snapshots',
  'chain',
  'memory',
  'durability',
] as const;
export type SectionName = (typeof SECTIONS)[number];

export type Sizes = {
  /** Repetitions of each measurement that does one request at a time. */
  samples: number;
  /** Repetitions of each burst. */
  bursts: number;
  /** Machines created at once in the small and in the large burst, both with a pool of `pool` clones. */
  burst: readonly [small: number, large: number];
  /** Clones that the service keeps ready in its pool (`SANDBAR_POOL_SIZE`). */
  pool: number;
  /** Cold boots, one after the other. */
  boots: number;
  /** How long the CPU use of idle machines is measured, in seconds. */
  idleSec: number;
  /** Machines of 128 MB that run at the same time. */
  machines: number;
  /** Machines that run a job while the host agent and the control plane are killed. */
  killed: number;
  /** How often both processes are killed. */
  kills: number;
  /** Rounds of the durability section: kills of a process while a guest writes and syncs. */
  rounds: number;
};

const FULL: Sizes = {
  samples: 30,
  bursts: 3,
  burst: [20, 50],
  pool: 4,
  boots: 100,
  idleSec: 20,
  machines: 200,
  killed: 20,
  kills: 2,
  rounds: 100,
};
const QUICK: Sizes = {
  samples: 2,
  bursts: 1,
  burst: [2, 3],
  pool: 1,
  boots: 2,
  idleSec: 2,
  machines: 3,
  killed: 2,
  kills: 1,
  rounds: 3,
};

export type BenchArguments = {
  sections: readonly SectionName[];
  sizes: Sizes;
  isWhole: boolean;
  /** The file for the results. Undefined: {@link resultsFile} of a whole run, none of any other. */
  out: string | undefined;
};

/** Maps each command line option that takes one number to the field of `Sizes` that it sets. */
const OPTIONS = {
  samples: 'samples',
  bursts: 'bursts',
  pool: 'pool',
  boots: 'boots',
  'idle-sec': 'idleSec',
  machines: 'machines',
  killed: 'killed',
  kills: 'kills',
  rounds: 'rounds',
} as const satisfies Record<string, keyof Sizes>;

export const USAGE = `npm run bench -- [SECTION ...] [OPTIONS]
  sections        ${SECTIONS.join(' ')}; none named: all of them
  --quick         every section in small: shows that it works, its figures mean little
  ${Object.keys(OPTIONS)
    .map((name) => `--${name} N`)
    .join(' ')}
  --out FILE      writes the results there. A whole run writes bench/RESULTS.md, or bench/RESULTS-kvm.md where
                  machines are on KVM; any other only prints`;

/** Where a whole run writes its results. Figures on KVM and of emulation cannot be compared, so each has a file. */
export function resultsFile(isolation: Isolation): string {
  return isolation === 'kvm' ? 'bench/RESULTS-kvm.md' : 'bench/RESULTS.md';
}

/** Reads the command line. Throws `Problem` with the usage when it is wrong. */
export function readBenchArguments(args: readonly string[]): BenchArguments {
  const { values, positionals } = parse(args);
  const given = Object.entries(OPTIONS).flatMap(([option, size]) => {
    const text = values[option];
    return text === undefined ? [] : [[size, readCount(option, String(text))] as const];
  });
  const isWhole = positionals.length === 0 && given.length === 0 && !values.quick;
  const out = values.out === undefined ? undefined : String(values.out);
  return {
    sections: positionals.length === 0 ? SECTIONS : positionals.map(readSection),
    sizes: { ...(values.quick ? QUICK : FULL), ...Object.fromEntries(given) },
    isWhole,
    out,
  };
}

type Parsed = { values: Record<string, string | boolean | undefined>; positionals: string[] };

function parse(args: readonly string[]): Parsed {
  const numbers = Object.fromEntries(Object.keys(OPTIONS).map((name) => [name, { type: 'string' as const }]));
  const options = { quick: { type: 'boolean' as const }, out: { type: 'string' as const }, ...numbers };
  try {
    const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options });
    return { values: { ...values }, positionals };
  } catch (error) {
    throw new Problem(`${messageOf(error)}\n\n${USAGE}`);
  }
}

function readCount(name: string, text: string): number {
  if (/^[1-9]\d{0,5}$/.test(text)) return Number(text);
  throw new Problem(`--${name} must be a whole number of at least 1, not "${text}"`);
}

function readSection(text: string): SectionName {
  const section = SECTIONS.find((name) => name === text);
  if (section !== undefined) return section;
  throw new Problem(`there is no section "${text}"; there are ${SECTIONS.join(', ')}`);
}
