// What a dynamically linked QEMU needs to see of the host: itself, its libraries and modules, its firmware. Found once at
// the start by asking the loader and QEMU, so that one outside /usr works too.
import { existsSync, lstatSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { CommandError, runCommand } from '../run-command.ts';

export type ProgramFiles = {
  /** Files and folders that are visible read-only, at their own place. */
  visible: readonly string[];
  /** Symlinks of the root folder, as [target, name]; /lib64 is in the name of every program's loader. */
  links: readonly (readonly [string, string])[];
};

/** `programs`: absolute paths without symlinks. */
export async function findProgramFiles(programs: readonly string[]): Promise<ProgramFiles> {
  const libraries = (await Promise.all(programs.map(librariesOf))).flat();
  const found = new Set<string>([...programs, '/etc/ld.so.cache']);
  for (const library of libraries) {
    // By both names: that of the library in the loader's list, and the file that a symlink there leads to.
    for (const path of [
      `${realpathSync(dirname(library))}/${library.slice(dirname(library).length + 1)}`,
      realpathSync(library),
    ]) {
      // Modules are beside the libraries of a distribution; any other folder may have who knows what in it.
      found.add(path.startsWith('/usr/') ? dirname(path) : path);
    }
  }
  for (const folder of await dataFoldersOf(programs)) found.add(folder);
  return { visible: withoutNested([...found].filter((path) => existsSync(path))), links: rootLinks() };
}

/** Libraries and the loader, as the loader names them; none for a static program. */
async function librariesOf(program: string): Promise<string[]> {
  try {
    const said = await runCommand('ldd', [program]);
    return [...said.matchAll(/(?:=> |^\s+)(\/\S+) \(0x/gm)].map((match) => match[1] ?? '');
  } catch (error) {
    if (error instanceof CommandError && error.message.includes('not a dynamic executable')) return [];
    throw error;
  }
}

/** Firmware, by QEMU's own list, and the modules of a QEMU that was not put in by the distribution. */
async function dataFoldersOf(programs: readonly string[]): Promise<string[]> {
  const folders: string[] = [];
  for (const program of programs.filter((path) => path.includes('qemu-system-'))) {
    const prefix = dirname(dirname(program));
    folders.push(...(await runCommand(program, ['-L', 'help'])).trim().split('\n'));
    folders.push(...['lib', 'lib64'].map((lib) => `${prefix}/${lib}/qemu`));
  }
  return folders.filter((folder) => existsSync(folder)).map((folder) => realpathSync(folder));
}

function rootLinks(): (readonly [string, string])[] {
  return ['/lib', '/lib64']
    .filter((path) => lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink())
    .map((path) => [readlinkSync(path), path] as const);
}

/** Leaves out what is in a folder that is visible anyway. */
function withoutNested(paths: readonly string[]): string[] {
  const folders = paths.filter((path) => statSync(path).isDirectory());
  return paths.filter((path) => !folders.some((folder) => path.startsWith(`${folder}/`))).sort();
}
