// Lists the entries of tar archives in two ways: with our check of imported archives (`judgeArchive`), and with the
// reader that umoci uses, Go's archive/tar (list-tar/main.go). Both must find the same entries in an archive that the
// check accepts.
import { execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { judgeArchive } from '../../src/images/import/judge-archive.ts';

/** An entry as `type name -> link size`. The text is the same for both readers. */
export type Listing = { entries: string[]; error?: string };

const SOURCE = path.join(import.meta.dirname, 'list-tar', 'main.go');

/** Lists an archive with our check. `error` is the reason when the check refuses the archive. */
export async function listWithJudge(archive: Buffer): Promise<Listing> {
  const entries: string[] = [];
  try {
    for await (const { type, name, linkName, size } of judgeArchive(inChunks(archive))) {
      entries.push(textOf(type, name, linkName, size));
    }
    return { entries };
  } catch (error) {
    if (!(error instanceof Error) || error instanceof TypeError || error instanceof RangeError) throw error;
    return { entries, error: error.message };
  }
}

async function* inChunks(archive: Buffer): AsyncGenerator<Buffer> {
  // An odd length, so that headers lie across two chunks.
  for (let at = 0; at < archive.length; at += 1777) yield archive.subarray(at, at + 1777);
}

function textOf(type: string, name: string, linkName: string, size: number): string {
  return `${type} ${JSON.stringify(name)} -> ${JSON.stringify(linkName)} ${size}`;
}

/** A running list-tar. */
export type TarLister = { list(archives: readonly Buffer[]): Promise<Listing[]>; stop(): Promise<void> };

/**
 * Compiles and starts list-tar. `npm test` names its Go toolchain in SANDBAR_TEST_GO; without that, `go` must be on the
 * PATH or in /usr/local/go.
 */
export async function startTarLister(): Promise<TarLister> {
  const folder = await mkdtemp(path.join(tmpdir(), 'list-tar-'));
  const program = path.join(folder, 'list-tar');
  const env = {
    ...process.env,
    PATH: `${process.env.PATH}:/usr/local/go/bin`,
    GOCACHE: process.env.GOCACHE ?? path.join(homedir(), '.cache', 'go-build'),
    GO111MODULE: 'off',
  };
  await promisify(execFile)(process.env.SANDBAR_TEST_GO ?? 'go', ['build', '-o', program, SOURCE], { env });
  const child = spawn(program, { stdio: ['pipe', 'pipe', 'inherit'] });
  const exited = once(child, 'exit');
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return {
    async list(archives) {
      for (const archive of archives) child.stdin.write(Buffer.concat([lengthOf(archive), archive]));
      const listings: Listing[] = [];
      for (const _ of archives) {
        const line = await lines.next();
        if (line.done) throw new Error('list-tar has ended');
        listings.push(readListing(line.value));
      }
      return listings;
    },
    async stop() {
      child.stdin.end();
      await exited;
      await rm(folder, { recursive: true });
    },
  };
}

function lengthOf(archive: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(archive.length);
  return length;
}

type GoEntry = { name: string; link: string; type: string; size: number };

function readListing(line: string): Listing {
  const { entries, error }: { entries: GoEntry[]; error?: string } = JSON.parse(line);
  const bytes = (base64: string) => Buffer.from(base64, 'base64').toString('latin1');
  const texts = entries.map(({ name, link, type, size }) => textOf(type, bytes(name), bytes(link), size));
  return { entries: texts, ...(error === undefined ? {} : { error }) };
}
