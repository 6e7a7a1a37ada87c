// What a QEMU said last: it tells why it ended, in a sentence for people.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RUN_FILES } from './qemu-args.ts';

const MAX_CHARACTERS = 300;

/** The last line of a machine's QEMU log; empty when it said nothing or its run directory is gone. */
export function lastLogLine(runDir: string): string {
  try {
    const log = readFileSync(join(runDir, RUN_FILES.log), 'utf8');
    return log.trim().split('\n').at(-1)?.slice(0, MAX_CHARACTERS) ?? '';
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}
