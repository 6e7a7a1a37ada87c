// Checks for the programs that only an import needs. A host without them can still run everything else.
import { accessSync, constants } from 'node:fs';
import path from 'node:path';
import { searchPath } from '../build-command.ts';
import { ImageError } from '../image-error.ts';

/** Pairs of a program and the Debian or Ubuntu package that contains it. */
const TOOLS: readonly (readonly [string, string])[] = [
  ['skopeo', 'skopeo'],
  ['umoci', 'umoci'],
  ['bwrap', 'bubblewrap'],
];

/**
 * Throws ImageError when programs are missing, naming all their packages, and when the account is not root: only root
 * can give files the owners they have in the image.
 */
export function requireTools(
  cacheDir: string,
  isThere: (program: string) => boolean = isOnPath,
  isRoot = process.getuid?.() === 0,
): void {
  if (!isRoot) {
    throw new ImageError(
      `Importing an image keeps the owners of its files, which only root may: run it with sudo and SANDBAR_CACHE=${cacheDir}`,
    );
  }
  const missing = TOOLS.filter(([program]) => !isThere(program)).map(([, name]) => name);
  if (missing.length === 0) return;
  throw new ImageError(`Importing an image needs ${missing.join(' and ')}: apt-get install ${missing.join(' ')}`);
}

function isOnPath(program: string): boolean {
  return searchPath()
    .split(':')
    .some((folder) => {
      try {
        accessSync(path.join(folder, program), constants.X_OK);
        return true;
      } catch {
        return false;
      }
    });
}
