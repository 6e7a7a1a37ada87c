// Creates the log of the control plane with the configured level.
import { createLog as createProcessLog, type Log } from '@sandbar/logging/log.ts';
import type { LogLevel } from './config.ts';

export type { Log };

/** Creates the log. Tests pass a `destination` to read what is logged. */
export function createLog(level: LogLevel, destination?: { write(line: string): void }): Log {
  return createProcessLog({ process: 'control-plane', level, destination });
}
