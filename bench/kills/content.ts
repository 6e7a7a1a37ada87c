// Makes the bytes that a job writes, and the command that writes them: to its output, and to a synced file with the
// job's name.
import type { Random } from './random.ts';

/** The folder of the files on a root disk. On a volume, the files are in the folder `kept`. */
export const ROOT_FOLDER = '/root/kept';

export type Content = { command: string; stdout: Buffer; stderr: Buffer; exitCode: number };

/**
 * Makes the content of one job. A job with `isLong` takes some seconds, so that kills and other operations happen while
 * it runs.
 */
export function createContent(
  random: Random,
  { tag, folder, isLong }: { tag: string; folder: string; isLong: boolean },
): Content {
  const batches = isLong ? random.integer(3, 8) : random.integer(1, 2);
  const lines = random.integer(20, 800);
  const exitCode = random.integer(0, 3);
  const command =
    `mkdir -p ${folder} && { for b in $(seq 1 ${batches}); do seq -f "${tag} $b %.0f" 1 ${lines}; ${isLong ? 'sleep 1; ' : ''}done; } ` +
    `| tee ${folder}/${tag} && sync && echo "${tag} end" >&2 && exit ${exitCode}; exit 99`;
  const text = Array.from({ length: batches }, (_, batch) =>
    Array.from({ length: lines }, (_, line) => `${tag} ${batch + 1} ${line + 1}\n`).join(''),
  ).join('');
  return { command, stdout: Buffer.from(text), stderr: Buffer.from(`${tag} end\n`), exitCode };
}
