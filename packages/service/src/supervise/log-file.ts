// The log of a process: a plain file that the process writes itself, so that a supervisor that dies loses no line.
// One old file is kept; a size bounds both.
import { closeSync, copyFileSync, openSync, readFileSync, renameSync, statSync, truncateSync } from 'node:fs';

/** Rotated when a service starts, bytes. */
const AT_START = 5 * 2 ** 20;
/** Rotated while it runs, bytes. */
const AT_MOST = 50 * 2 ** 20;
const CHECK_EVERY_MS = 10_000;

/** Opens the log for a child to inherit; whoever opened it closes it. */
export function openLog(file: string): number {
  return openSync(file, 'a', 0o640);
}

export function rotateAtStart(file: string): void {
  if (sizeOf(file) > AT_START) renameSync(file, `${file}.1`);
}

/** Rotates while the child runs. Returns what ends it. */
export function watchSize(file: string, atMost = AT_MOST, everyMs = CHECK_EVERY_MS): () => void {
  const timer = setInterval(() => {
    if (sizeOf(file) <= atMost) return;
    // The child keeps its descriptor, so the file is copied and emptied; it appends, and goes on at the beginning.
    copyFileSync(file, `${file}.1`);
    truncateSync(file);
  }, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}

/** The last lines from `offset` on (the size when a start began); reads at most 64 KiB. */
export function lastLines(file: string, count: number): string {
  const size = sizeOf(file);
  const text = size === 0 ? '' : readFileSync(file, 'utf8').slice(-64 * 1024);
  return text.trimEnd().split('\n').slice(-count).join('\n');
}

export function closeLog(descriptor: number): void {
  closeSync(descriptor);
}

function sizeOf(file: string): number {
  return statSync(file, { throwIfNoEntry: false })?.size ?? 0;
}
