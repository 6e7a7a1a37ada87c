// Starts the service in the background, as `npm start` does in the foreground, and waits until it is ready.
import { type ChildProcess, spawn } from 'node:child_process';
import { closeSync, fstatSync, mkdirSync, openSync, readSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import type { ServiceConfig } from '../config.ts';
import { messageOf, Problem } from '../problem.ts';
import { findSupervisor, type Ready, readReady } from '../ready-file.ts';
import { openLog, rotateAtStart } from '../supervise/log-file.ts';

const POLL_MS = 50;
/** How many lines of the log the message of a failed start has. */
const LINES_SHOWN = 12;

export type Started = Ready & {
  /** False when the service ran already, or when another start was under way. */
  isNew: boolean;
};

/** The script that `npm start` runs. */
export function startScript({ checkout }: ServiceConfig): string {
  return `${checkout}/scripts/start.mjs`;
}

/** The file with the output of a service in the background. */
export function serviceLog(home: string): string {
  return `${homePaths(home).logs}/service.log`;
}

/**
 * Starts the service unless it runs, and resolves when it is ready. A first start downloads packages, so it can take
 * minutes. `say` gets the output of the start as it comes. After an abort the started service is ended, and the reason
 * of the signal is thrown. Throws Problem with the end of the output when the start fails.
 */
export async function startInBackground(
  config: ServiceConfig,
  say: (text: string) => void,
  signal: AbortSignal,
): Promise<Started> {
  const { home } = config;
  const found = findSupervisor(home);
  const own = found === undefined ? launch(config) : undefined;
  try {
    for (;;) {
      const supervisor = findSupervisor(home);
      const ready = supervisor && readReady(home, supervisor);
      own?.output.pass(say);
      if (ready) return { ...ready, isNew: own !== undefined && own.hasEnded() === false };
      // Another start at the same time may have won. Then this start has ended, and the loop waits for the other one.
      if (supervisor === undefined && (own === undefined || own.hasEnded())) throw failureOf(home, own?.output.text());
      await delay(POLL_MS, undefined, { signal });
    }
  } catch (error) {
    if (!signal.aborted) throw error;
    await own?.end();
    throw signal.reason;
  } finally {
    own?.output.close();
  }
}

type Launched = { output: LogReader; hasEnded: () => boolean; end: () => Promise<void> };

function launch(config: ServiceConfig): Launched {
  const log = serviceLog(config.home);
  let descriptor: number;
  try {
    // The set-up gives these folders their final modes.
    mkdirSync(homePaths(config.home).logs, { recursive: true, mode: 0o700 });
    rotateAtStart(log);
    descriptor = openLog(log);
  } catch (error) {
    throw new Problem(
      `Cannot write to the data directory ${config.home} (${messageOf(error)}): make it writable or name another one in SANDBAR_HOME`,
    );
  }
  const output = new LogReader(log);
  const child = spawn(process.execPath, [startScript(config)], {
    detached: true,
    cwd: config.checkout,
    stdio: ['ignore', descriptor, descriptor],
    env: { ...process.env, ...absolutePaths(config) },
  });
  closeSync(descriptor);
  child.unref();
  const gone = new Promise<void>((resolve) => child.once('exit', () => resolve()).once('error', () => resolve()));
  let hasEnded = false;
  void gone.then(() => {
    hasEnded = true;
  });
  return { output, hasEnded: () => hasEnded, end: () => endChild(child, gone) };
}

/** Makes the paths in the environment absolute, because the service runs in another working directory than the caller. */
function absolutePaths({ home, cacheDir, env }: ServiceConfig): NodeJS.ProcessEnv {
  return {
    ...(env.SANDBAR_HOME ? { SANDBAR_HOME: home } : {}),
    ...(env.SANDBAR_CACHE ? { SANDBAR_CACHE: cacheDir } : {}),
  };
}

async function endChild(child: ChildProcess, gone: Promise<void>): Promise<void> {
  child.ref();
  child.kill('SIGTERM');
  await gone;
}

function failureOf(home: string, output: string | undefined): Problem {
  const log = serviceLog(home);
  const lines = output?.trim().split('\n').slice(-LINES_SHOWN).join('\n');
  return new Problem(
    lines ? `Sandbar did not start (${log}):\n${lines}` : `Sandbar ended while it started: see ${log}`,
  );
}

/** Reads what is appended to the log from now on. */
class LogReader {
  readonly #descriptor: number;
  readonly #decoder = new TextDecoder();
  #position: number;
  #text = '';

  constructor(file: string) {
    this.#descriptor = openSync(file, 'r');
    this.#position = fstatSync(this.#descriptor).size;
  }

  pass(say: (text: string) => void): void {
    const added = this.#read();
    if (added !== '') say(added);
  }

  /** All text that was appended so far. */
  text(): string {
    this.#read();
    return this.#text;
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  #read(): string {
    const buffer = Buffer.alloc(64 * 1024);
    let added = '';
    for (let size = -1; size !== 0; this.#position += size) {
      size = readSync(this.#descriptor, buffer, 0, buffer.length, this.#position);
      added += this.#decoder.decode(buffer.subarray(0, size), { stream: true });
    }
    this.#text += added;
    return added;
  }
}
