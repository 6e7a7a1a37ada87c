// Finds the files that a dynamically linked QEMU needs: the program, its libraries and modules, its firmware. The agent
// asks the loader and QEMU itself once at start, so a QEMU outside /usr works too.
import { existsSync, lstatSync, readlinkSync, realpathSync, statSync } from 'node:fs';
import { dirname } from 'node:path';
import { CommandError, runCommand } from '../run-command.ts';

export type ProgramFiles = {
  /** Host files and folders that the jail shows read-only, at the same path as on the host. */
  visible: readonly string[];
  /**
   * Symlinks in the root folder, as [target, name]. Programs need them, because the path of every program's loader
   * begins with /lib64.
   */
  links: readonly (readonly [string, string])[];
};

/**
 * Returns the files that the programs need. `programs`: absolute paths without symlinks. Throws when a program cannot
 * be run.
 */
export async function findProgramFiles(programs: readonly string[]): Promise<ProgramFiles> {
  const libraries = (await Promise.all(programs.map(librariesOf))).flat();
  const found = new Set<string>([...programs, '/etc/ld.so.cache']);
  for (const library of libraries) {
    // The library needs to be visible under two names: the name in the loader's list, and the target if that is a
    // symlink.
    for (const path of [
      `${realpathSync(dirname(library))}/${library.slice(dirname(library).length + 1)}`,
      realpathSync(library),
    ]) {
      // For a distribution's library the whole folder is visible, because it also contains QEMU's modules. Other
      // folders may contain private files, so only the library itself is visible.
      found.add(path.startsWith('/usr/') ? dirname(path) : path);
    }
  }
  for (const folder of await dataFoldersOf(programs)) found.add(folder);
  return { visible: withoutNested([...found].filter((path) => existsSync(path))), links: rootLinks() };
}

/** Returns the paths of the libraries and the loader, as `ldd` prints them. A static program has none. */
async function librariesOf(program: string): Promise<string[]> {
  try {
    const said = await runCommand('ldd', [program]);
    return [...said.matchAll(/(?:=> |^\s+)(\/\S+) \(0x/gm)].map((match) => match[1] ?? '');
  } catch (error) {
    if (error instanceof CommandError && error.message.includes('not a dynamic executable')) return [];
    throw error;
  }
}

/**
 * Returns the firmware folders that each QEMU program prints, and the module folders of a QEMU that was not installed
 * from a distribution package, or was unpacked from one into another folder.
 */
async function dataFoldersOf(programs: readonly string[]): Promise<string[]> {
  const folders: string[] = [];
  for (const program of programs.filter((path) => path.includes('qemu-system-'))) {
    const prefix = dirname(dirname(program));
    folders.push(...(await runCommand(program, ['-L', 'help'])).trim().split('\n'));
    folders.push(...['lib', 'lib64', 'lib/x86_64-linux-gnu'].map((lib) => `${prefix}/${lib}/qemu`));
  }
  return folders.filter((folder) => existsSync(folder)).map((folder) => realpathSync(folder));
}

function rootLinks(): (readonly [string, string])[] {
  return ['/lib', '/lib64']
    .filter((path) => lstatSync(path, { throwIfNoEntry: false })?.isSymbolicLink())
    .map((path) => [readlinkSync(path), path] as const);
}

/** Leaves out paths inside a folder that is itself in the list. */
function withoutNested(paths: readonly string[]): string[] {
  const folders = paths.filter((path) => statSync(path).isDirectory());
  return paths.filter((path) => !folders.some((folder) => path.startsWith(`${folder}/`))).sort();
}
