// Copies what runs on a server into a folder: the sources of some workspaces, which Node runs as they are, the installed
// packages that they need, and the finished guest agent and dashboard. The folder has the layout of a checkout, so the
// programs find each other as they do there.
import { chmod, cp, mkdir, readdir, readFile, stat, symlink, utimes } from 'node:fs/promises';
import path from 'node:path';
import { productionModules } from './modules.ts';
import { withDependencies } from './workspaces.ts';

export type Application = {
  checkout: string;
  /** A new folder. */
  target: string;
  /** Names of folders in packages/. The packages that they depend on are copied too. */
  workspaces: readonly string[];
};

/** Tests, and sources that only tests use. */
const FOR_TESTS = /(\.test\.ts|^test-support\.ts|^testing|^tests)$/;
/** Files of installed packages that only compilers and debuggers read. */
const FOR_COMPILERS = /\.(d\.[cm]?ts|map)$/;
const WORKSPACE_PARTS = new Set(['bin', 'package.json', 'src']);

/** Copies the workspaces and their modules, and the root's package.json, which has the version. Throws Error. */
export async function stageApplication({ checkout, target, workspaces: roots }: Application): Promise<void> {
  const workspaces = await withDependencies(checkout, roots);
  await mkdir(target, { recursive: true });
  for (const name of ['package.json', 'LICENSE']) await cp(path.join(checkout, name), path.join(target, name));
  for (const name of workspaces) await copyWorkspace(checkout, target, name);
  for (const folder of await productionModules(checkout, workspaces)) {
    await copyModule(path.join(checkout, folder), path.join(target, folder));
  }
}

async function copyWorkspace(checkout: string, target: string, name: string): Promise<void> {
  const from = path.join(checkout, 'packages', name);
  await cp(from, path.join(target, 'packages', name), {
    recursive: true,
    filter: (file) => {
      const [part = ''] = path.relative(from, file).split(path.sep);
      return (part === '' || WORKSPACE_PARTS.has(part)) && !FOR_TESTS.test(path.basename(file));
    },
  });
  // Link the workspace, because Node runs no TypeScript below node_modules. Node resolves the link first, so it runs
  // the files in packages/.
  const scope = path.join(target, 'node_modules', '@sandbar');
  await mkdir(scope, { recursive: true });
  await symlink(path.join('..', '..', 'packages', name), path.join(scope, name));
}

/** Copies one installed package without its own node_modules. The caller also copies the packages there, if needed. */
export async function copyModule(from: string, to: string): Promise<void> {
  const nested = path.join(from, 'node_modules');
  await cp(from, to, {
    recursive: true,
    verbatimSymlinks: true,
    filter: (file) => file !== nested && !FOR_COMPILERS.test(file),
  });
}

/**
 * Makes the modes and times of all files independent of who built them and when. `epochSec`: seconds since 1970. Every
 * user may read every file, and a file that its owner may execute may be executed by everybody.
 */
export async function normalise(folder: string, epochSec: number): Promise<void> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true });
  for (const entry of entries) {
    if (entry.isSymbolicLink()) continue;
    const file = path.join(entry.parentPath, entry.name);
    if (entry.isDirectory()) await chmod(file, 0o755);
    else await chmod(file, (await isExecutable(file)) ? 0o755 : 0o644);
    await utimes(file, epochSec, epochSec);
  }
  await chmod(folder, 0o755);
  await utimes(folder, epochSec, epochSec);
}

async function isExecutable(file: string): Promise<boolean> {
  return ((await stat(file)).mode & 0o100) !== 0;
}

/** The version of the service. */
export async function versionOf(checkout: string): Promise<string> {
  const { version } = JSON.parse(await readFile(path.join(checkout, 'package.json'), 'utf8')) as { version: string };
  return version;
}
