// The log file of a process. The process writes it directly, so no line is lost when the supervisor dies. One older
// file is kept, and both have a maximum size.
import { closeSync, copyFileSync, openSync, readFileSync, renameSync, statSync, truncateSync } from 'node:fs';

/** In bytes. A larger file is rotated when the service starts. */
const AT_START = 5 * 2 ** 20;
/** In bytes. A larger file is rotated while the service runs. */
const AT_MOST = 50 * 2 ** 20;
const CHECK_EVERY_MS = 10_000;

/** Opens the log file, so that a child process can inherit the descriptor. The caller closes the descriptor. */
export function openLog(file: string): number {
  return openSync(file, 'a', 0o640);
}

export function rotateAtStart(file: string): void {
  if (sizeOf(file) > AT_START) renameSync(file, `${file}.1`);
}

/** Rotates the file whenever it grows too large, until the returned function is called. */
export function watchSize(file: string, atMost = AT_MOST, everyMs = CHECK_EVERY_MS): () => void {
  const timer = setInterval(() => {
    if (sizeOf(file) <= atMost) return;
    // The child keeps its descriptor, so renaming the file would not work. Copy the file and empty it. The child opened
    // it for appending, so its next line is written at the start of the empty file.
    copyFileSync(file, `${file}.1`);
    truncateSync(file);
  }, everyMs);
  timer.unref();
  return () => clearInterval(timer);
}

/** Returns the last `count` lines, taken from the last 64 KiB of the file. */
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
