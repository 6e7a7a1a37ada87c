// The log of this process, with its name and the levels that the configuration allows.
import { createLog as createProcessLog, type Log } from '@sandbar/logging/log.ts';
import type { LogLevel } from './config.ts';

export type { Log };

/** Makes the log. `destination` is for tests that read it. */
export function createLog(level: LogLevel, destination?: { write(line: string): void }): Log {
  return createProcessLog({ process: 'control-plane', level, destination });
}
