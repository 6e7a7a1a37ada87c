// Packs the built packages with npm, as `npm publish` would.
import { execFile } from 'node:child_process';
import { stat } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { buildPackage } from './build.ts';
import { nameOf, PUBLISHED } from './packages.ts';

const execute = promisify(execFile);

export type Tarball = { folder: string; file: string; bytes: number };

/** Builds and packs all published packages below `target`. Resolves with one tarball for each, in their order. */
export async function packAll(checkout: string, target: string): Promise<Tarball[]> {
  const builds = PUBLISHED.map((published) => ({ published, built: path.join(target, published.folder) }));
  await Promise.all(builds.map(({ published, built }) => buildPackage(published, checkout, built)));
  const args = [
    'pack',
    ...builds.map(({ built }) => built),
    '--pack-destination',
    target,
    '--json',
    '--ignore-scripts',
  ];
  const { stdout } = await execute('npm', args, { cwd: target });
  const packed = JSON.parse(stdout) as { name: string; filename: string }[];
  return Promise.all(
    builds.map(async ({ published }) => {
      const { filename } = packed.find(({ name }) => name === nameOf(published)) ?? {};
      if (filename === undefined) throw new Error(`npm packed no ${nameOf(published)}`);
      const file = path.join(target, filename);
      return { folder: published.folder, file, bytes: (await stat(file)).size };
    }),
  );
}
