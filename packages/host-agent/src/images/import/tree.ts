/**
 * Resolves paths in an image's unpacked tree as a machine with that root would: a symlink always leads to a place
 * inside the tree, wherever it points. No other process may write to the tree meanwhile.
 */
import { lstat, mkdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import { hasErrorCode, ImageError } from '../image-error.ts';

/** The most symlinks that are followed in one path; the kernel has the same limit. */
const LINKS_MAX = 40;

/**
 * Returns the folder that the path `inside` names in the tree. Creates it and missing parents with mode 0755. Throws
 * ImageError when something other than a folder is there.
 */
export async function makeFolderInTree(tree: string, inside: string): Promise<string> {
  const pending = partsOf(inside);
  let here: string[] = [];
  let links = 0;
  for (let part = pending.shift(); part !== undefined; part = pending.shift()) {
    if (part === '..') {
      here.pop();
      continue;
    }
    const file = path.join(tree, ...here, part);
    const found = await lstat(file).catch((error: unknown) => {
      if (hasErrorCode(error, 'ENOENT')) return undefined;
      if (hasErrorCode(error, 'ENAMETOOLONG'))
        throw new ImageError('The image is refused: it names a path that is too long');
      throw error;
    });
    if (found?.isSymbolicLink()) {
      if (++links > LINKS_MAX) throw new ImageError(`The image is refused: the links to ${inside} in it have no end`);
      const target = await readlink(file);
      if (target.startsWith('/')) here = [];
      pending.unshift(...partsOf(target));
      continue;
    }
    if (found === undefined) await mkdir(file, { mode: 0o755 });
    else if (!found.isDirectory()) throw new ImageError(`The image is refused: ${inside} in it is not a folder`);
    here.push(part);
  }
  return path.join(tree, ...here);
}

function partsOf(file: string): string[] {
  return file.split('/').filter((part) => part !== '' && part !== '.');
}
