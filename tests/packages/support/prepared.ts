// Tells the tests of the packages where the shared tools and the installed packages are.
import { mkdir } from 'node:fs/promises';
import path from 'node:path';
import { defaultCache } from '@sandbar/contract/home.ts';
import { run } from './run.ts';

export const CHECKOUT = path.resolve(import.meta.dirname, '../../..');
export const CACHE = defaultCache(process.env, process.getuid?.() === 0);

/** The paths of the shared folders. Tests must not change their contents. */
export type Prepared = { tools: string; packages: string };

let prepared: Promise<Prepared> | undefined;

/**
 * Creates the folders if they are missing; only one process at a time does this. Throws an Error when something must be
 * installed and the npm registry cannot be reached.
 */
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
