// An empty project outside the checkout. Our packages are installed in it from their tarballs, as a user would do it.
import { cp, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { CHECKOUT, ensurePrepared } from './prepared.ts';

export type Project = {
  folder: string;
  /** The paths of the tarballs by the folder of their package. */
  tarballs: ReadonlyMap<string, string>;
  /** Writes a file of the project and returns its path. */
  write: (name: string, text: string) => Promise<string>;
  /** Lets the project import a package that is installed in the checkout. */
  link: (name: string) => Promise<void>;
  remove: () => Promise<void>;
};

/** Copies the prepared project, which has all our packages and their dependencies, but not their peers. */
export async function installPackages(): Promise<Project> {
  const { packages } = await ensurePrepared();
  const folder = await mkdtemp(path.join(tmpdir(), 'sandbar-packages-'));
  await cp(packages, folder, { recursive: true, verbatimSymlinks: true });
  const names = JSON.parse(await readFile(path.join(folder, 'tarballs.json'), 'utf8')) as Record<string, string>;
  return {
    folder,
    tarballs: new Map(Object.entries(names).map(([name, file]) => [name, path.join(folder, file)])),
    write: async (name, text) => {
      const file = path.join(folder, name);
      await writeFile(file, text);
      return file;
    },
    link: async (name) => {
      const at = path.join(folder, 'node_modules', name);
      await mkdir(path.dirname(at), { recursive: true });
      await symlink(path.join(CHECKOUT, 'node_modules', name), at);
    },
    remove: () => rm(folder, { recursive: true, force: true }),
  };
}

/** The first example of a package's README.md, in TypeScript. */
export async function readmeExample(packageFolder: string): Promise<string> {
  const text = await readFile(path.join(packageFolder, 'README.md'), 'utf8');
  const example = /```ts\n([\s\S]*?)```/.exec(text)?.[1];
  if (example === undefined) throw new Error(`${packageFolder}/README.md has no example`);
  return example;
}
