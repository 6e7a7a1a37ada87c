// The attacks: what root in a guest does, and on how many machines. Each attack has a baseline: the same number of
// machines that only compute. The comparison shows what the attack costs others beyond the processor time that any busy
// machine takes from them.
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { ExecCreate } from '@sandbar/contract/exec.ts';

export type Attack = {
  name: string;
  /** Machines of the attacker, and the vCPUs of each. */
  machines: number;
  vcpus: number;
  /** Returns new jobs for one of these machines. They do not end by themselves. */
  jobs: () => readonly ExecCreate[];
  /** Name of the attack to compare with. Baselines have none. */
  baseline?: string;
  /** How many ms the guest needs until the attack has begun. */
  warmUpMs: number;
  /** Whether the attacker's account keeps starting jobs in the machine while it attacks. */
  startsJobs?: boolean;
  /** Whether a quick run includes this attack. */
  isQuick?: boolean;
};

const program = (name: string) => readFileSync(join(import.meta.dirname, 'guest', name), 'utf8');
const python = (name: string, ...args: string[]): ExecCreate => ({ argv: ['python3', '-c', program(name), ...args] });
const shell = (command: string): ExecCreate => ({ command });
const times = <T>(count: number, value: T): T[] => Array.from({ length: count }, () => value);

/** A machine runs at most 16 jobs at a time. */
const JOBS_EACH = 15;
/** The host spends at most a fifth of a core on the output of each machine, so six may need more than one core. */
const MANY = 6;
/** The program in the guest waits a second, loads Python's modules and freezes the guest agent. */
const TAKE_OVER_MS = 3000;

const busy = (machines: number, vcpus: number): Attack => ({
  name: `busy: ${machines} x ${vcpus} vCPU`,
  machines,
  vcpus,
  jobs: () => times(vcpus, shell('while :; do :; done')),
  warmUpMs: 500,
  isQuick: machines * vcpus <= 2,
});

type Port = { flood: string; what: string; machines?: number; isQuick?: boolean };
const port = ({ flood, what, machines = 1, isQuick = false }: Port): Attack => ({
  name: machines === 1 ? `port: ${what}` : `port: ${what}, ${machines} machines`,
  machines,
  vcpus: 1,
  jobs: () => {
    const ids = [1, 2, 3, 4].map(() => randomUUID());
    return ids.map((exec_id, at) => ({
      exec_id,
      ...(at < 3 ? shell('sleep 1000') : python('port.py', flood, ...ids)),
    }));
  },
  baseline: `busy: ${machines} x 1 vCPU`,
  warmUpMs: TAKE_OVER_MS,
  startsJobs: true,
  isQuick,
});

type One = { name: string; jobs: ExecCreate[]; machines?: number; isQuick?: boolean };
const simple = ({ name, jobs, machines = 1, isQuick = false }: One): Attack => {
  return { name, machines, vcpus: 1, jobs: () => jobs, baseline: `busy: ${machines} x 1 vCPU`, warmUpMs: 500, isQuick };
};

export const ATTACKS: readonly Attack[] = [
  busy(1, 1),
  port({ flood: 'repeats', what: 'repeats offset 0', isQuick: true }),
  port({ flood: 'empty', what: 'frames without a byte' }),
  port({ flood: 'tiny-frames', what: 'frames of one byte' }),
  port({ flood: 'tiny-data', what: 'data frames of one byte' }),
  port({ flood: 'pings', what: 'HTTP/2 pings' }),
  port({ flood: 'garbage', what: 'garbage in sessions' }),
  port({ flood: 'stale', what: 'garbage without a session' }),
  port({ flood: 'sessions', what: 'ends each session' }),
  simple({ name: 'flows: 30,000 at a time', jobs: [python('flows.py')] }),
  simple({ name: 'names: dead ones', jobs: [python('names.py', 'dead')], isQuick: true }),
  simple({ name: 'names: garbage', jobs: [python('names.py', 'garbage')] }),
  simple({
    name: 'disk: fills it',
    jobs: [shell('while :; do cat /dev/zero > /root/full 2>/dev/null; sync; rm /root/full; done')],
    isQuick: true,
  }),
  simple({
    name: 'disk: small syncs',
    jobs: times(4, shell('while :; do echo x > /root/$$; sync /root/$$; done')),
  }),
  busy(2, 1),
  simple({ name: 'output: 30 jobs of lines', machines: 2, jobs: times(JOBS_EACH, shell('yes')), isQuick: true }),
  simple({
    name: 'output: 30 jobs of single bytes',
    machines: 2,
    jobs: times(JOBS_EACH, { argv: ['python3', '-c', 'import os\nwhile True: os.write(1, b"x")'] }),
  }),
  busy(MANY, 1),
  port({ flood: 'tiny-frames', what: 'frames of one byte', machines: MANY }),
  simple({ name: 'output: 90 jobs of lines', machines: MANY, jobs: times(JOBS_EACH, shell('yes')) }),
  busy(4, 2),
  {
    name: 'cpu: fork bombs',
    machines: 4,
    vcpus: 2,
    jobs: () => [shell('bomb() { bomb | bomb & }; bomb; sleep 1000')],
    baseline: 'busy: 4 x 2 vCPU',
    warmUpMs: 500,
  },
];
