// The log of a VM's QEMU: opens it, reads its last line, which tells users why QEMU ended, and keeps it small.
import { closeSync, constants, existsSync, fstatSync, openSync, readdirSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { trimLog } from '../jail/log-cap.ts';
import { RUN_FILES } from './qemu-args.ts';

const MAX_CHARACTERS = 300;
/** How many bytes at the end of a log are read. */
const TAIL_BYTES = 16 * 1024;
/** A log that grows past this size is shortened; see `trimLog`. */
export const MAX_LOG_BYTES = 1024 * 1024;

/**
 * Opens the log of a VM that is being started, for appending, and creates it if needed. Returns the descriptor. Throws
 * when something else is in its place, which an earlier QEMU of the same machine may have put there.
 */
export function openLog(runDir: string): number {
  const { O_CREAT, O_APPEND, O_WRONLY, O_NOFOLLOW, O_NONBLOCK } = constants;
  const file = join(runDir, RUN_FILES.log);
  const fd = openSync(file, O_CREAT | O_APPEND | O_WRONLY | O_NOFOLLOW | O_NONBLOCK, 0o600);
  const facts = fstatSync(fd);
  if (facts.isFile() && facts.nlink === 1) return fd;
  closeSync(fd);
  throw new Error(`${file} is not a log file of its own`);
}

type TrimLog = { warn(details: object, message: string): void };

/**
 * Shortens the logs of all VMs below `runDir`. If that fails for a file, it logs a warning and leaves the file. Never
 * throws.
 */
export function trimLogs(runDir: string, log: TrimLog): void {
  const attempt = (path: string, act: () => void) => {
    try {
      act();
    } catch (err) {
      log.warn({ err, path }, "a VM's log could not be shortened");
    }
  };
  for (const kind of ['machines', 'pool', 'templates']) {
    const dir = join(runDir, kind);
    attempt(dir, () => {
      if (!existsSync(dir)) return;
      for (const name of readdirSync(dir)) {
        const file = join(dir, name, RUN_FILES.log);
        attempt(file, () => trimLog(file, MAX_LOG_BYTES));
      }
    });
  }
}

/**
 * Returns the last line of a VM's QEMU log, at most 300 characters; empty when there is none or it cannot be read.
 * Never throws.
 */
export function lastLogLine(runDir: string): string {
  try {
    return readTail(join(runDir, RUN_FILES.log)).trim().split('\n').at(-1)?.slice(0, MAX_CHARACTERS) ?? '';
  } catch {
    return '';
  }
}

/** Reads the end of a log. The folder belongs to the VM, so links and everything but a regular file are refused. */
function readTail(file: string): string {
  const fd = openSync(file, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  try {
    const facts = fstatSync(fd);
    if (!facts.isFile() || facts.nlink > 1) return '';
    const tail = Buffer.alloc(Math.min(facts.size, TAIL_BYTES));
    return tail.toString('utf8', 0, readSync(fd, tail, 0, tail.length, facts.size - tail.length));
  } finally {
    closeSync(fd);
  }
}
