// Fuzzes the check of imported archives against the reader that umoci uses, and against umoci itself: in an archive
// that the check accepts, all three must find the same entries. Archives are made of likely parts, so that many are
// accepted, and then some bytes are changed.
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { inspectLayout } from '../../src/images/import/inspect-layout.ts';
import { unpackLayout } from '../../src/images/import/unpack.ts';
import { Finding, type FuzzOptions, Random, shrink } from './fuzzing.ts';
import { madeUpArchive } from './made-up-archive.ts';
import { writeLayout } from './oci-layout.ts';
import { listWithJudge, startTarLister, type TarLister } from './tar-lister.ts';

/** How many archives the two readers get at once. */
const BATCH = 200;
/** One of this many accepted archives is also unpacked by umoci, which takes a hundred times as long as to list it. */
const UNPACKED_OF = 150;
const LIMITS = { bytes: 2 ** 30, files: 1000 };

/**
 * Runs until `until` returns true. Throws `Finding`. Returns how many archives were tried, accepted by the check, and
 * also unpacked.
 */
export async function fuzzArchives({ seed, until }: FuzzOptions) {
  const lister = await startTarLister();
  const result = { cases: 0, accepted: 0, unpacked: 0 };
  try {
    while (!until()) {
      const first = result.cases;
      const archives = Array.from({ length: BATCH }, (_, at) => madeUpArchive(new Random(seed, first + at)));
      result.cases += BATCH;
      const differences = await compare(lister, archives);
      for (const [at, difference] of differences.entries()) {
        const archive = archives[at] ?? Buffer.alloc(0);
        if (difference === 'refused') continue;
        if (difference !== undefined) throw await smallestFinding(lister, archive, { seed, caseNumber: first + at });
        if (result.accepted++ % UNPACKED_OF !== 0 || process.getuid?.() !== 0) continue;
        const wrong = await unpack(archive);
        if (wrong !== undefined) throw new Finding(wrong, { seed, caseNumber: first + at, input: archive });
        result.unpacked++;
      }
    }
    return result;
  } finally {
    await lister.stop();
  }
}

/**
 * Returns for each archive what differs, `refused` when the check refuses the archive, or undefined when both agree.
 */
async function compare(lister: TarLister, archives: readonly Buffer[]): Promise<(string | undefined)[]> {
  const ours = await Promise.all(archives.map(listWithJudge));
  const accepted = archives.filter((_, at) => ours[at]?.error === undefined);
  const theirs = (await lister.list(accepted))[Symbol.iterator]();
  return ours.map((our) => {
    if (our.error !== undefined) return 'refused';
    const their = theirs.next().value ?? { entries: [] };
    // Go also parses times and owners, and may refuse an entry for them. umoci then unpacks only the entries before it,
    // so only those are compared.
    const expected = their.error === undefined ? our.entries : our.entries.slice(0, their.entries.length);
    const isSame = expected.length === their.entries.length && expected.every((text, at) => text === their.entries[at]);
    return isSame ? undefined : `the check finds\n${our.entries.join('\n')}\nand Go finds\n${their.entries.join('\n')}`;
  });
}

async function smallestFinding(lister: TarLister, archive: Buffer, where: { seed: number; caseNumber: number }) {
  const differenceOf = async (input: Buffer) => {
    const [difference] = await compare(lister, [input]);
    return difference === 'refused' ? undefined : difference;
  };
  const input = await shrink(archive, 512, async (smaller) => (await differenceOf(smaller)) !== undefined);
  return new Finding((await differenceOf(input)) ?? '', { ...where, input });
}

/**
 * Unpacks an accepted archive with the real umoci. Returns what is wrong: a write outside of the tree, or a file that
 * the check has not seen. Ordinary failures of umoci, such as a hard link to a missing file, are allowed.
 */
async function unpack(archive: Buffer): Promise<string | undefined> {
  const scratch = await mkdtemp(path.join(tmpdir(), 'fuzz-archives-'));
  try {
    const layout = await writeLayout(path.join(scratch, 'layout'), { layers: [archive] });
    await unpackLayout(scratch, await inspectLayout(layout, LIMITS), LIMITS);
    const { entries } = await listWithJudge(archive);
    const allowed = namesOf(entries);
    // umoci may write a file through a symlink, so its path differs from its name in the archive. Compare nothing then.
    if (allowed === undefined) return undefined;
    const found = await readdir(path.join(scratch, 'tree'), { recursive: true, encoding: 'latin1' });
    const unseen = found.filter((name) => !allowed.has(name));
    return unseen.length === 0
      ? undefined
      : `umoci wrote ${JSON.stringify(unseen)}, and the check found ${entries.join(', ')}`;
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    return /read-only file system/i.test(message) ? message : undefined;
  } finally {
    await rm(scratch, { recursive: true });
  }
}

/** Returns the names of listed entries and of all folders above them, or undefined when one is a symlink. */
function namesOf(entries: readonly string[]): Set<string> | undefined {
  if (entries.some((entry) => entry.startsWith('2'))) return undefined;
  const names = new Set<string>();
  for (const entry of entries) {
    const name: string = JSON.parse(/^. (".*") -> "/.exec(entry)?.[1] ?? '""');
    const parts = name.split('/').filter((part) => part !== '' && part !== '.');
    for (let length = 1; length <= parts.length; length++) names.add(parts.slice(0, length).join('/'));
  }
  return names;
}
