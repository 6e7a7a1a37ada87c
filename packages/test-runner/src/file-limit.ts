// Ends test files that hang. Node's runner has a time limit for tests, but none for the process of a file: it waits for
// ever when a test has left something open.
import { readdirSync, readFileSync } from 'node:fs';

/** Kills the child process that runs `file` after `limitMs` milliseconds. Returns a function that cancels this. */
export function limitFile(file: string, limitMs: number): () => void {
  const timer = setTimeout(() => {
    for (const pid of childrenWith(file)) process.kill(pid, 'SIGKILL');
  }, limitMs);
  return () => clearTimeout(timer);
}

/** The process ids of the children of this process whose last argument is `file`. */
function childrenWith(file: string): number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .filter((pid) => {
      // The program's name is in brackets and may contain spaces. The parent's id is the second field after them.
      const parent = read(`/proc/${pid}/stat`).split(') ').at(-1)?.split(' ')[1];
      return Number(parent) === process.pid && read(`/proc/${pid}/cmdline`).endsWith(`\0${file}\0`);
    })
    .map(Number);
}

function read(file: string): string {
  try {
    return readFileSync(file, 'utf8');
  } catch {
    // The process ended in the meantime.
    return '';
  }
}
