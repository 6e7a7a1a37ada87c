// What a QEMU said last: it tells why it ended, in a sentence for people.
import { closeSync, constants, existsSync, fstatSync, openSync, readdirSync, readSync } from 'node:fs';
import { join } from 'node:path';
import { trimLog } from '../jail/log-cap.ts';
import { RUN_FILES } from './qemu-args.ts';

const MAX_CHARACTERS = 300;
/** How much of the end of a log is looked at. */
const TAIL_BYTES = 16 * 1024;
/** A log is cut when it grows past this; see `trimLog`. */
export const MAX_LOG_BYTES = 1024 * 1024;

type TrimLog = { warn(details: object, message: string): void };

/** Cuts the logs of all VMs below the folder of run directories. What is not a log is left, and said; it never throws. */
export function trimLogs(runDir: string, log: TrimLog): void {
  const attempt = (path: string, act: () => void) => {
    try {
      act();
    } catch (err) {
      log.warn({ err, path }, "a VM's log could not be cut");
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

/** The last line of a machine's QEMU log; empty when it said nothing or what is there cannot be read. Never throws. */
export function lastLogLine(runDir: string): string {
  try {
    return readTail(join(runDir, RUN_FILES.log)).trim().split('\n').at(-1)?.slice(0, MAX_CHARACTERS) ?? '';
  } catch {
    return '';
  }
}

/** The log is in a folder that belongs to the VM: nothing but a file is read, and only its end. */
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
