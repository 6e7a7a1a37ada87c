/**
 * Decides which entries a layer may have. Refuses entries that ordinary images never contain, and entries that
 * unpackers have handled wrongly. This is the first line of defence; umoci also runs confined.
 */
import { Refusal, shown } from './refusal.ts';
import { readTarEntries, type TarEntry } from './tar-entries.ts';

/** The longest file name that a file system takes, in bytes. */
const NAME_MAX = 255;

/**
 * Yields the entries of a layer. Throws Refusal for an entry that is not allowed, and Error when the archive is
 * damaged.
 */
export async function* judgeArchive(chunks: AsyncIterable<Buffer>): AsyncGenerator<TarEntry> {
  for await (const entry of readTarEntries(chunks)) {
    checkEntry(entry);
    yield entry;
  }
}

function checkEntry({ name, type, linkName }: TarEntry): void {
  const parts = partsOf(name);
  if (parts.includes('..')) throw new Refusal(`${shown(name)} is outside of the image, or has ".." in its name`);
  if (type === '1' && (partsOf(linkName).includes('..') || linkName === '')) {
    throw new Refusal(`${shown(name)} is a hard link to a file outside of the image, or to a name with ".."`);
  }
  if (parts.some((part) => part.length > NAME_MAX)) {
    throw new Refusal(`${shown(name)} is longer than the ${NAME_MAX} bytes that a file name may have`);
  }
  const last = parts.at(-1);
  if (last === undefined && type !== '5') throw new Refusal('its root is not a folder');
  // A whiteout of "." or ".." would remove its own folder or the parent folder.
  if (last !== undefined && /^\.wh\.\.{0,2}$/.test(last))
    throw new Refusal(`${shown(name)} removes a folder from within`);
}

/** Returns the parts of a path, without empty parts and ".". */
function partsOf(name: string): string[] {
  return name.split('/').filter((part) => part !== '' && part !== '.');
}
