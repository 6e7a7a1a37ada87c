// Makes the package.json of a published package from that of its workspace and from the table of packages.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { nameOf, PUBLISHED, type PublishedPackage, publicEntries } from './packages.ts';

/** The oldest supported Node, unless the workspace names another: the first version with `AbortSignal.any`. */
const NODE = '>=20.3';

export type Workspace = {
  name: string;
  version: string;
  description?: string;
  engines?: { node: string };
  dependencies?: Record<string, string>;
  peerDependencies?: Record<string, string>;
  peerDependenciesMeta?: Record<string, object>;
  license?: string;
  repository?: unknown;
  homepage?: string;
};

export async function readWorkspace(folder: string): Promise<Workspace> {
  return JSON.parse(await readFile(path.join(folder, 'package.json'), 'utf8')) as Workspace;
}

/** The folders of the dependencies that are unpublished workspaces. Their code becomes part of the build. */
export function inlinedWorkspaces({ dependencies = {} }: Workspace): string[] {
  const published = PUBLISHED.map(nameOf);
  return Object.keys(dependencies).flatMap((name) => {
    const folder = /^@sandbar\/(.+)$/.exec(name)?.[1];
    return folder === undefined || published.includes(name) ? [] : [folder];
  });
}

/**
 * Makes the package.json of the built package. It pins other published packages to their present version, and keeps the
 * version ranges of the workspace for all other dependencies.
 */
export async function manifestOf(published: PublishedPackage, checkout: string): Promise<object> {
  const workspace = await readWorkspace(path.join(checkout, 'packages', published.folder));
  const root = await readWorkspace(checkout);
  const { name, version, peerDependencies, peerDependenciesMeta } = workspace;
  const { description = workspace.description, kind, command, imports, subpaths = [] } = published;
  const dependencies = published.isSelfContained ? {} : await installedDependencies(workspace, checkout);
  return {
    name,
    version,
    description,
    license: root.license,
    ...(root.repository === undefined ? {} : { repository: root.repository }),
    ...(root.homepage === undefined ? {} : { homepage: root.homepage }),
    type: 'module',
    engines: { node: workspace.engines?.node ?? NODE },
    sideEffects: kind === 'program',
    ...(kind === 'library'
      ? {
          types: './dist/index.d.ts',
          exports: {
            ...Object.fromEntries(
              publicEntries(published).map((entry) => [
                entry === 'index' ? '.' : `./${entry}`,
                { types: `./dist/${entry}.d.ts`, default: `./dist/${entry}.js` },
              ]),
            ),
            './package.json': './package.json',
          },
          // For consumers whose compiler does not read `exports` (`moduleResolution: node10`).
          ...(subpaths.length === 0
            ? {}
            : {
                typesVersions: { '*': Object.fromEntries(subpaths.map((entry) => [entry, [`./dist/${entry}.d.ts`]])) },
              }),
        }
      : { exports: { './package.json': './package.json' } }),
    ...(imports === undefined ? {} : { imports }),
    ...(command === undefined ? {} : { bin: { [command]: `dist/${command}.js` } }),
    files: ['dist', 'THIRD_PARTY_LICENSES'],
    ...(Object.keys(dependencies).length === 0 ? {} : { dependencies }),
    ...(peerDependencies === undefined ? {} : { peerDependencies }),
    ...(peerDependenciesMeta === undefined ? {} : { peerDependenciesMeta }),
    publishConfig: { access: 'public' },
  };
}

async function installedDependencies(workspace: Workspace, checkout: string): Promise<Record<string, string>> {
  const found: Record<string, string> = {};
  for (const [name, range] of Object.entries(workspace.dependencies ?? {})) {
    if (!name.startsWith('@sandbar/')) {
      found[name] = range;
      continue;
    }
    const published = PUBLISHED.find((other) => nameOf(other) === name);
    if (published !== undefined) {
      found[name] = (await readWorkspace(path.join(checkout, 'packages', published.folder))).version;
    }
  }
  return found;
}
