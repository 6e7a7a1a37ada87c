// Checks the files of a disk in a running machine against what its jobs wrote and synced.
import { type ClientContext, contradict } from '../client-context.ts';
import type { Disk, Machine } from '../model.ts';
import { runReader, type Target } from './jobs.ts';

/** How often a job that lists the files is tried. A kill can lose such a job, but losing five in a row is a defect. */
const ATTEMPTS = 5;

/**
 * Checks that every synced file is there with its bytes, and that no other file is there: neither one that nobody wrote
 * nor one that a restore removed.
 */
export async function checkDisk(context: ClientContext, machine: Machine, { disk, folder }: Target): Promise<void> {
  const command = `mkdir -p ${folder} && cd ${folder} && find . -maxdepth 1 -type f -exec sha256sum {} +`;
  for (let attempt = 0; attempt < ATTEMPTS; attempt++) {
    const listing = await runReader(context, machine, command);
    if (listing === undefined) continue;
    for (const difference of compare(disk, parse(listing))) {
      contradict(context, `${difference} in ${folder} of machine ${machine.id}`);
    }
    context.journal.act(context.who, 'disk check', `${folder} of ${machine.id}, ${disk.certain.size} files`);
    return;
  }
  throw contradict(context, `${ATTEMPTS} jobs in a row were lost before they ran in ${machine.id}`);
}

/** Parses the output of sha256sum. Each line has the sum, two spaces, and the path, which begins with `./`. */
function parse(listing: string): Map<string, string> {
  const lines = listing.split('\n').filter(Boolean);
  return new Map(lines.map((line) => [line.slice(64).trim().replace(/^\.\//, ''), line.slice(0, 64)]));
}

function compare({ certain, doubtful }: Disk, found: ReadonlyMap<string, string>): string[] {
  return [
    ...[...certain].flatMap(([name, sum]) => {
      const there = found.get(name);
      if (there === sum) return [];
      return [there === undefined ? `the synced file ${name} is lost` : `the synced file ${name} has other bytes`];
    }),
    ...[...found.keys()]
      .filter((name) => !certain.has(name) && !doubtful.has(name))
      .map((name) => `the file ${name} should not be there`),
  ];
}
