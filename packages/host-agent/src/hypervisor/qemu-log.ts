// What a QEMU said last: it tells why it ended, in a sentence for people.
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { trimLog } from '../jail/log-cap.ts';
import { readRunFile } from '../jail/run-files.ts';
import { RUN_FILES } from './qemu-args.ts';

const MAX_CHARACTERS = 300;
/** A log is cut when it grows past this; see `trimLog`. */
export const MAX_LOG_BYTES = 1024 * 1024;

/** Cuts the logs of all VMs below the folder of run directories. */
export function trimLogs(runDir: string): void {
  for (const kind of ['machines', 'pool', 'templates']) {
    const dir = join(runDir, kind);
    if (!existsSync(dir)) continue;
    for (const name of readdirSync(dir)) trimLog(join(dir, name, RUN_FILES.log), MAX_LOG_BYTES);
  }
}

/** The last line of a machine's QEMU log; empty when it said nothing or its run directory is gone. */
export function lastLogLine(runDir: string): string {
  try {
    const log = readRunFile(runDir, RUN_FILES.log, MAX_LOG_BYTES);
    return log.trim().split('\n').at(-1)?.slice(0, MAX_CHARACTERS) ?? '';
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}
