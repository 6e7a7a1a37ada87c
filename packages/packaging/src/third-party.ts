// Collects the licences of the libraries whose code is part of a built package, because these licences demand it.
import { existsSync } from 'node:fs';
import { glob, readFile } from 'node:fs/promises';
import path from 'node:path';

/**
 * The text of THIRD_PARTY_LICENSES for the modules of a build (absolute paths), or undefined when all of them are our
 * own. Throws Error for a library without a licence file.
 */
export async function thirdPartyLicenses(modules: Iterable<string>): Promise<string | undefined> {
  const folders = new Set<string>();
  for (const module of modules) {
    const folder = /^(\/.*\/node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(module)?.[1];
    if (folder !== undefined) folders.add(folder);
  }
  const parts: string[] = [];
  for (const folder of [...folders].sort()) parts.push(await licenseOf(folder));
  return parts.length === 0 ? undefined : `${[...new Set(parts)].sort().join(`\n${'-'.repeat(80)}\n\n`)}`;
}

async function licenseOf(folder: string): Promise<string> {
  const file = path.join(folder, 'package.json');
  if (!existsSync(file)) throw new Error(`${folder} has no package.json`);
  const { name, version, license } = JSON.parse(await readFile(file, 'utf8')) as Record<string, string>;
  for await (const found of glob('{LICEN[SC]E,licen[sc]e}*', { cwd: folder })) {
    return `${name} ${version} (${license})\n\n${(await readFile(path.join(folder, found), 'utf8')).trim()}\n`;
  }
  throw new Error(`${name} ${version} has no licence file`);
}
