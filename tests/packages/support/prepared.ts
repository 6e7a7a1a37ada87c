// Where the tools and the installed packages are that all tests of the packages share.
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { defaultCache } from '@sandbar/contract/home.ts';
import { run } from './run.ts';

export const CHECKOUT = path.resolve(import.meta.dirname, '../../..');
export const CACHE = defaultCache(process.env, process.getuid?.() === 0);

/** Folders that nobody may change. */
export type Prepared = { tools: string; packages: string };

let prepared: Promise<Prepared> | undefined;

/** Makes what is missing, in one process at a time. Throws Error without the registry. */
export function ensurePrepared(): Promise<Prepared> {
  prepared ??= prepare();
  return prepared;
}

async function prepare(): Promise<Prepared> {
  await mkdir(CACHE, { recursive: true });
  const program = path.join(import.meta.dirname, 'prepare.ts');
  const args = [path.join(CACHE, 'package-tests.lock'), process.execPath, program];
  const { code, stdout, stderr } = await run('flock', args, { cwd: CHECKOUT });
  if (code !== 0) throw new Error(`the packages cannot be prepared: ${stderr}`);
  return JSON.parse(stdout) as Prepared;
}
