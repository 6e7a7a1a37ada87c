/**
 * Selects an image from an OCI layout. skopeo accepts a layout with one image, or selects by tag. It refuses layouts
 * with one image per platform, so the choice is made here and skopeo gets an index with a single entry.
 */
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { ImageError } from '../image-error.ts';

/** An entry of an index, with its digest, annotations and platform. */
export type IndexEntry = {
  digest: string;
  annotations?: Record<string, unknown>;
  platform?: { os?: unknown; architecture?: unknown };
};

const TAG = 'org.opencontainers.image.ref.name';

/**
 * Reads `index.json` and returns the entry for `tag`; without a tag, the only entry or the only one for linux/amd64.
 * Throws ImageError when the file is invalid, or when no entry or several entries match.
 */
export async function chooseImage(folder: string, tag: string | undefined): Promise<IndexEntry> {
  const file = path.join(folder, 'index.json');
  const entries = readEntries(await readFile(file, 'utf8'), file);
  const tagged = entries.filter((entry) => tag === undefined || entry.annotations?.[TAG] === tag);
  if (tagged.length === 0) throw new ImageError(`${folder} has no image ${tag ?? ''}${choices(entries)}`);
  if (new Set(tagged.map(({ digest }) => digest)).size === 1 && tagged[0]) return tagged[0];

  const forThisHost = tagged.filter(({ platform }) => platform?.os === 'linux' && platform.architecture === 'amd64');
  if (forThisHost.length === 1 && forThisHost[0]) return forThisHost[0];
  if (forThisHost.length === 0 && tagged.every(({ platform }) => platform !== undefined)) {
    const platforms = tagged.map(({ platform }) => `${platform?.os}/${platform?.architecture}`).join(', ');
    throw new ImageError(`The image is refused: it is for ${platforms}, and this host runs linux/amd64`);
  }
  throw new ImageError(`${folder} has more than one image: name one by its tag${choices(entries)}`);
}

/** Returns the JSON of an index that contains only this image, under the given tag. */
export function indexOf(entry: IndexEntry, tag: string): string {
  const manifests = [{ ...entry, annotations: { [TAG]: tag } }];
  return JSON.stringify({ schemaVersion: 2, manifests });
}

function readEntries(json: string, file: string): IndexEntry[] {
  try {
    const { manifests } = JSON.parse(json);
    const isEntry = (entry: unknown) => /^sha256:[0-9a-f]{64}$/.test(Object(entry).digest);
    if (Array.isArray(manifests) && manifests.every(isEntry)) return manifests;
  } catch {
    // The error below reports it.
  }
  throw new ImageError(`${file} is not the index of an OCI layout`);
}

function choices(entries: readonly IndexEntry[]): string {
  const tags = entries.map((entry) => entry.annotations?.[TAG]).filter((tag) => typeof tag === 'string');
  return tags.length === 0 ? '' : ` (it has ${tags.join(', ')})`;
}
