/**
 * Paths in the unpacked tree of an image, as a machine that has it for its root would see them: a link of the image
 * leads to a place in the image, wherever it points. Nobody else may be writing into the tree meanwhile.
 */
import { lstat, mkdir, readlink } from 'node:fs/promises';
import path from 'node:path';
import { hasErrorCode, ImageError } from '../image-error.ts';

/** As many as the kernel follows. */
const LINKS_MAX = 40;

/**
 * The folder that `inside` names in the tree, made with its parents (0755) where it is missing. Throws ImageError when
 * something else is in its place.
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
