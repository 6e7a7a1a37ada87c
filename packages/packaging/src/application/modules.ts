// Finds the installed packages that some workspaces need when they run. It asks npm, because npm knows which packages
// it has hoisted and nested.
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';

const execute = promisify(execFile);

/**
 * Resolves with the folders of all packages that the workspaces need in production, relative to the checkout and sorted.
 * The workspaces themselves are not among them. Throws Error when a package is not installed.
 */
export async function productionModules(checkout: string, workspaces: readonly string[]): Promise<string[]> {
  const only = workspaces.flatMap((name) => ['-w', `packages/${name}`]);
  const args = ['ls', '--all', '--omit=dev', '--parseable', '--loglevel=error', ...only];
  const { stdout } = await execute('npm', args, { cwd: checkout, maxBuffer: 1 << 26 });
  const folders = stdout
    .split('\n')
    .map((line) => path.relative(checkout, line.trim()))
    .filter((folder) => folder.includes('node_modules') && !folder.startsWith('..'));
  // npm lists the link of a workspace with the folder that it points to.
  const own = folders.filter((folder) => !folder.startsWith(path.join('node_modules', '@sandbar')));
  return [...new Set(own)].sort();
}
