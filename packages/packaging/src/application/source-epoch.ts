// Chooses the timestamp of built files, so that two builds of the same commit are equal.
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

/** Returns SOURCE_DATE_EPOCH, else the time of the last commit, else 0. In seconds since 1970. */
export async function sourceEpoch(checkout: string): Promise<number> {
  const given = Number(process.env.SOURCE_DATE_EPOCH);
  if (Number.isInteger(given) && given > 0) return given;
  const log = promisify(execFile)('git', ['log', '-1', '--format=%ct'], { cwd: checkout });
  return log.then(
    ({ stdout }) => Number(stdout.trim()),
    () => 0,
  );
}
