// Finds the workspaces that the given workspaces depend on. It reads each package.json, so builds include a new
// workspace without a change here.
import { readFile } from 'node:fs/promises';
import path from 'node:path';

/** The folders below packages/ of these workspaces and of all that they depend on, sorted. */
export async function withDependencies(checkout: string, roots: readonly string[]): Promise<string[]> {
  const found = new Set(roots);
  // The loop also visits the workspaces that it adds to the set.
  for (const name of found) {
    const text = await readFile(path.join(checkout, 'packages', name, 'package.json'), 'utf8');
    const { dependencies = {} } = JSON.parse(text) as { dependencies?: Record<string, string> };
    for (const dependency of Object.keys(dependencies)) {
      const folder = /^@sandbar\/(.+)$/.exec(dependency)?.[1];
      if (folder !== undefined) found.add(folder);
    }
  }
  return [...found].sort();
}
