// A wall clock that can be stepped, for the processes that are started with its environment. Uses libfaketime, which
// puts itself between a process and the C library, so it reaches Node and PostgreSQL, but no static program. Only the
// wall clock steps: timers and the monotonic clock go on, as when an operator sets the clock of a computer. The clock
// of the computer itself is not touched.
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, readdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Problem } from '@sandbar/service/problem.ts';
import type { Progress } from '@sandbar/service/progress.ts';
import { installPackages } from '@sandbar/service/setup/system-packages.ts';

const TRIPLETS: Partial<Record<NodeJS.Architecture, string>> = { x64: 'x86_64', arm64: 'aarch64' };
/** The library for programs with several threads. */
const LIBRARY = `/usr/lib/${TRIPLETS[process.arch]}-linux-gnu/faketime/libfaketimeMT.so.1`;
const TEST_STEP_SEC = 100_000;
/** The process itself is stepped, and the processes that it starts are not. */
const KEEP_FROM_CHILDREN =
  '--import=data:text/javascript,delete%20process.env.LD_PRELOAD;delete%20process.env.NODE_OPTIONS';

export async function ensureFaketime(progress: Progress): Promise<void> {
  if (!existsSync(LIBRARY)) await installPackages(['faketime'], process.getuid?.() === 0, progress);
}

export class Clock {
  /** Whose clock it is. */
  readonly of: string;
  readonly #file: string;

  /** Makes the clock. `folder`: a folder in which every user can read. */
  constructor(of: string, folder: string) {
    this.of = of;
    this.#file = path.join(folder, `clock of ${of}`);
    this.step(0);
  }

  /** Sets the difference to the computer's clock. */
  step(sec: number): void {
    const draft = `${this.#file}.new`;
    writeFileSync(draft, `${sec < 0 ? '-' : '+'}${Math.abs(sec)}\n`);
    chmodSync(draft, 0o644);
    renameSync(draft, this.#file);
  }

  /** The environment of a process with this clock. The processes that it starts have the clock too. */
  get env(): Record<string, string> {
    return {
      LD_PRELOAD: LIBRARY,
      FAKETIME_TIMESTAMP_FILE: this.#file,
      FAKETIME_NO_CACHE: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      FAKETIME_DONT_RESET: '1',
      NO_FAKE_STAT: '1',
    };
  }

  /** The environment of a Node process with this clock. The processes that it starts have the computer's clock. */
  get envOfNode(): Record<string, string> {
    return { ...this.env, NODE_OPTIONS: KEEP_FROM_CHILDREN };
  }

  /** Throws when a process does not follow the clock. */
  check(): void {
    this.step(TEST_STEP_SEC);
    const env = { ...process.env, ...this.envOfNode };
    const said = execFileSync(process.execPath, ['-p', 'Date.now()'], { env, encoding: 'utf8' });
    this.step(0);
    const isFollowed = Number(said) > Date.now() + (TEST_STEP_SEC * 1000) / 2;
    if (!isFollowed) throw new Problem(`A process does not follow a clock of libfaketime (${LIBRARY})`);
  }
}

const SHARED_MEMORY = '/dev/shm';

/** What libfaketime keeps in shared memory. A process that is killed leaves it. */
export const listClockMemory = (): string[] => readdirSync(SHARED_MEMORY).filter((name) => name.includes('faketime_'));

/** Removes what has been left since `before` was listed. */
export function removeClockMemory(before: readonly string[]): void {
  for (const name of listClockMemory().filter((one) => !before.includes(one))) rmSync(path.join(SHARED_MEMORY, name));
}
