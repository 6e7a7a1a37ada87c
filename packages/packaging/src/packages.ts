// The packages that are published on npm. A new package needs a line here and a README.md in its folder.
import path from 'node:path';

export type PublishedPackage = {
  /** The folder of the workspace below packages/, and of the built package below build/npm. */
  folder: string;
  /** Default: the description of the workspace. */
  description?: string;
  /** The source file of each built file. The keys are the names of the built files, without extension. */
  entries: Readonly<Record<string, string>>;
  /** A `library` exports its entry `index`, with types. A `program` has a command. */
  kind: 'library' | 'program';
  /** More entries that a library exports, with types: `harness` becomes the export `./harness`. */
  subpaths?: readonly string[];
  /** The command of a program. The entry with the same name is its code. */
  command?: string;
  /**
   * Whether the build contains the code of all dependencies. Otherwise it contains only the workspaces that are not
   * published, and npm installs the other dependencies with the package.
   */
  isSelfContained?: boolean;
  /** Internal imports that choose a built file by the platform, as in the field `imports` of package.json. */
  imports?: Readonly<Record<string, Readonly<Record<string, string>>>>;
};

export const PUBLISHED: readonly PublishedPackage[] = [
  {
    folder: 'sdk',
    description: 'Run commands, files, terminals and ports in sandbox machines of a Sandbar service.',
    kind: 'library',
    entries: { index: 'src/index.ts', 'platform/node': 'src/platform/node.ts', 'platform/web': 'src/platform/web.ts' },
    imports: { '#platform': { node: './dist/platform/node.js', default: './dist/platform/web.js' } },
  },
  {
    folder: 'cli',
    description: 'The command line of Sandbar: sandbox machines that run commands, files, terminals and ports.',
    kind: 'program',
    command: 'sandbar',
    entries: { sandbar: 'src/published.ts' },
    isSelfContained: true,
  },
  { folder: 'adapters/computesdk', kind: 'library', entries: { index: 'src/index.ts' } },
  {
    folder: 'adapters/ai-sdk',
    kind: 'library',
    entries: { index: 'src/index.ts', harness: 'src/harness.ts' },
    subpaths: ['harness'],
  },
  { folder: 'adapters/deepagents', kind: 'library', entries: { index: 'src/index.ts' } },
];

/** The name of the package on npm. */
export function nameOf({ folder }: PublishedPackage): string {
  return `@sandbar/${path.basename(folder)}`;
}

/** The names of a library's entries that can be imported and have types. `platform/node`, for example, is internal. */
export function publicEntries({ kind, subpaths = [] }: PublishedPackage): readonly string[] {
  return kind === 'library' ? ['index', ...subpaths] : [];
}
