// Watches the processes of a service: their resident memory, their processor time, and whether one of them ended.
import { readdirSync, readFileSync } from 'node:fs';
import type { homePaths } from '@sandbar/contract/home.ts';
import { cpuSeconds, readIfThere, readPid, residentMb, startOf } from '../service/processes.ts';

export const PROCESSES = ['control plane', 'host agent', 'gateway', 'name relay'] as const;
export type ProcessName = (typeof PROCESSES)[number];
/** Process id and start time: other processes may get the id later. */
type Identity = { pid: number; start: string | undefined };
type Pids = Partial<Record<ProcessName, Identity>>;

/** What one process used while it was watched: its largest resident memory in MB, and its share of a core. */
export type Usage = { mostMb: number; cores: number };
export type Usages = Record<ProcessName, Usage>;

const SAMPLE_MS = 100;
/** The main files of the host agent's child processes. */
const MAINS = { gateway: '/gateway/main.ts', 'name relay': '/dns/main.ts' } as const;

export class ProcessWatch {
  readonly #paths: ReturnType<typeof homePaths>;
  readonly #began = performance.now();
  readonly #atBegin: Pids;
  readonly #cpuAtBegin: ReadonlyMap<number, number>;
  readonly #mostMb = new Map<ProcessName, number>();
  readonly #timer: NodeJS.Timeout;

  /** Begins to watch the service. */
  constructor(paths: ReturnType<typeof homePaths>) {
    this.#paths = paths;
    this.#atBegin = findProcesses(paths);
    this.#cpuAtBegin = new Map(Object.values(this.#atBegin).map(({ pid }) => [pid, cpuSeconds(pid)]));
    this.#timer = setInterval(() => this.#sample(), SAMPLE_MS);
    this.#sample();
  }

  /** Ends the watch. Returns what each process used, and which processes were not the same all the time. */
  end(): { usages: Usages; ended: ProcessName[] } {
    clearInterval(this.#timer);
    const atEnd = findProcesses(this.#paths);
    const seconds = (performance.now() - this.#began) / 1000;
    const ended: ProcessName[] = [];
    const usages = Object.fromEntries(
      PROCESSES.map((name): [ProcessName, Usage] => {
        const [first, last] = [this.#atBegin[name], atEnd[name]];
        const isSame = first !== undefined && first.pid === last?.pid && first.start === last.start;
        if (!isSame) ended.push(name);
        const used = isSame ? cpuSeconds(first.pid) - (this.#cpuAtBegin.get(first.pid) ?? 0) : Number.NaN;
        return [name, { mostMb: this.#mostMb.get(name) ?? Number.NaN, cores: used / seconds }];
      }),
    ) as Usages;
    return { usages, ended };
  }

  #sample(): void {
    for (const [name, { pid }] of Object.entries(findProcesses(this.#paths)) as [ProcessName, Identity][]) {
      const mb = residentMb(pid);
      if (mb !== undefined) this.#mostMb.set(name, Math.max(mb, this.#mostMb.get(name) ?? 0));
    }
  }
}

function findProcesses(paths: ReturnType<typeof homePaths>): Pids {
  const agent = readPid(paths.pidFile('host-agent'));
  const control = readPid(paths.pidFile('control-plane'));
  const pids: Pids = {};
  if (control !== undefined) pids['control plane'] = identify(control);
  if (agent === undefined) return pids;
  pids['host agent'] = identify(agent);
  for (const pid of descendants(agent)) {
    const [program = '', ...args] = readText(`/proc/${pid}/cmdline`).split('\0').filter(Boolean);
    for (const name of ['gateway', 'name relay'] as const) {
      if (program.endsWith('/node') && args.at(-1)?.endsWith(MAINS[name])) pids[name] = identify(pid);
    }
  }
  return pids;
}

const identify = (pid: number): Identity => ({ pid, start: startOf(pid) });

/** All processes below `pid`. */
function descendants(pid: number): number[] {
  const tasks = readIfThere(() => readdirSync(`/proc/${pid}/task`)) ?? [];
  const children = tasks.flatMap((task) =>
    readText(`/proc/${pid}/task/${task}/children`).split(' ').filter(Boolean).map(Number),
  );
  return children.flatMap((child) => [child, ...descendants(child)]);
}

/** The content of a file in /proc; empty when the process has ended. */
const readText = (path: string): string => readIfThere(() => readFileSync(path, 'utf8')) ?? '';
