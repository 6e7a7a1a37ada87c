// Archives made by tar, which keeps owners, modes, links and the holes of sparse files. The checksum is computed while an
// archive is written, so it is that of what tar has read and not of what the disk returned.
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { createReadStream, createWriteStream } from 'node:fs';
import { open } from 'node:fs/promises';
import type { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { messageOf, Problem } from '../problem.ts';

export type Checksum = { sha256: string; bytes: number };

/** The exit code of tar when files changed while it read them. */
const CHANGED = 1;

export type Pack = {
  root: string;
  entries: readonly string[];
  /** Patterns of paths to leave out, as tar's --exclude reads them. */
  excluded?: readonly string[];
  /** Whether files may change meanwhile. If not, a change is an error. */
  mayChange?: boolean;
};

/** Writes entries of a folder into an archive that only its owner can read, and onto the disk. Throws Problem. */
export async function pack(file: string, { root, entries, excluded = [], mayChange = false }: Pack): Promise<Checksum> {
  const excludes = excluded.map((pattern) => `--exclude=${pattern}`);
  const options = ['--create', '--format=posix', '--sparse', '--numeric-owner', '--anchored', ...excludes];
  const tar = spawn('tar', [...options, '--file=-', `--directory=${root}`, '--', ...entries], TAR_OPTIONS);
  const ended = endOf(tar);
  // It is awaited below. Until then, Node must not treat its failure as unhandled.
  ended.catch(() => {});
  const hash = createHash('sha256');
  let bytes = 0;
  const count = async function* (source: AsyncIterable<Buffer>) {
    for await (const chunk of source) {
      hash.update(chunk);
      bytes += chunk.length;
      yield chunk;
    }
  };
  try {
    await pipeline(tar.stdout, count, createWriteStream(file, { mode: 0o600 }));
  } catch (error) {
    tar.kill();
    await ended;
    throw new Problem(`Cannot write ${file} (${messageOf(error)})`);
  }
  const { code, said } = await ended;
  if (code !== 0 && !(mayChange && code === CHANGED)) throw new Problem(`tar could not read ${root}: ${said}`);
  await syncFile(file);
  return { sha256: hash.digest('hex'), bytes };
}

/** Extracts an archive with the owners and modes that it has. Throws Problem. */
export async function unpack(file: string, root: string): Promise<void> {
  const options = ['--extract', '--numeric-owner', '--preserve-permissions', `--file=${file}`, `--directory=${root}`];
  const tar = spawn('tar', options, TAR_OPTIONS);
  tar.stdout.resume();
  const { code, said } = await endOf(tar);
  if (code !== 0) throw new Problem(`tar could not extract ${file}: ${said}`);
}

/** Throws Problem when the file is not what `expected` says. */
export async function verify(file: string, expected: Checksum): Promise<void> {
  const hash = createHash('sha256');
  let bytes = 0;
  try {
    for await (const chunk of createReadStream(file, { highWaterMark: 2 ** 20 })) {
      hash.update(chunk);
      bytes += (chunk as Buffer).length;
    }
  } catch (error) {
    throw new Problem(`Cannot read ${file} (${messageOf(error)})`);
  }
  if (bytes === expected.bytes && hash.digest('hex') === expected.sha256) return;
  throw new Problem(`${file} is damaged: it is not what was backed up. Nothing was restored; take another back-up`);
}

async function syncFile(file: string): Promise<void> {
  const handle = await open(file, 'r');
  await handle.sync().finally(() => handle.close());
}

// English messages, which the Problem shows.
const TAR_OPTIONS = {
  stdio: ['ignore', 'pipe', 'pipe'] as ['ignore', 'pipe', 'pipe'],
  env: { ...process.env, LC_ALL: 'C' },
};

type Tar = ChildProcessByStdio<null, Readable, Readable>;

async function endOf(tar: Tar): Promise<{ code: number | null; said: string }> {
  const closed = new Promise<number | null>((resolve, reject) => {
    tar.once('error', (error) => reject(new Problem(`Cannot run tar (${error.message}): install it`)));
    tar.once('close', resolve);
  });
  const [code, said] = await Promise.all([closed, text(tar.stderr)]);
  return { code, said: said.trim().slice(-1000) };
}
