/**
 * Selects an image from an OCI layout. skopeo accepts a layout with one image, or selects by tag. It refuses layouts
 * with one image per platform, so the choice is made here and skopeo gets an index with a single entry.
 */
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { ImageError } from '../image-error.ts';
import { type Descriptor, DOCUMENT_MAX, readDescriptor, valueAt } from './layout-documents.ts';

/** An entry of an index. All other fields of the entry are left out. */
export type IndexEntry = Descriptor & {
  tag: string | undefined;
  /** For example `linux/amd64`. */
  platform: string | undefined;
};

const TAG = 'org.opencontainers.image.ref.name';

/**
 * Reads `index.json` and returns the entry for `tag`; without a tag, the only entry or the only one for linux/amd64.
 * Throws ImageError when the file is invalid, or when no entry or several entries match.
 */
export async function chooseImage(folder: string, tag: string | undefined): Promise<IndexEntry> {
  const file = path.join(folder, 'index.json');
  const found = await stat(file);
  if (!found.isFile() || found.size > DOCUMENT_MAX) throw notAnIndex(file);
  const entries = parseEntries(await readFile(file, 'utf8'), file);
  const tagged = entries.filter((entry) => tag === undefined || entry.tag === tag);
  if (tagged.length === 0) throw new ImageError(`${folder} has no image ${tag ?? ''}${choices(entries)}`);
  if (new Set(tagged.map(({ digest }) => digest)).size === 1 && tagged[0]) return tagged[0];

  const forThisHost = tagged.filter(({ platform }) => platform === 'linux/amd64');
  if (forThisHost.length === 1 && forThisHost[0]) return forThisHost[0];
  if (forThisHost.length === 0 && tagged.every(({ platform }) => platform !== undefined)) {
    const platforms = tagged.map(({ platform }) => platform).join(', ');
    throw new ImageError(`The image is refused: it is for ${platforms}, and this host runs linux/amd64`);
  }
  throw new ImageError(`${folder} has more than one image: name one by its tag${choices(entries)}`);
}

/**
 * Returns the JSON of an index that contains only this image, under the given tag. It copies no other fields of the
 * entry: skopeo reads a field `Digest` as `digest`, so with such a field skopeo would copy another image than the
 * chosen one.
 */
export function indexOf({ mediaType, digest, size }: Descriptor, tag: string): string {
  const manifests = [{ mediaType, digest, size, annotations: { [TAG]: tag } }];
  return JSON.stringify({ schemaVersion: 2, manifests });
}

/** Parses an index. Throws ImageError, which mentions the path `file`. */
export function parseEntries(json: string, file: string): IndexEntry[] {
  let index: unknown;
  try {
    index = JSON.parse(json);
  } catch {
    throw notAnIndex(file);
  }
  const manifests = valueAt(index, 'manifests');
  if (!Array.isArray(manifests)) throw notAnIndex(file);
  return manifests.map((value) => {
    const descriptor = readDescriptor(value);
    if (descriptor === undefined) throw notAnIndex(file);
    return { ...descriptor, tag: textAt(valueAt(value, 'annotations'), TAG), platform: platformOf(value) };
  });
}

function platformOf(value: unknown): string | undefined {
  const platform = valueAt(value, 'platform');
  const [os, architecture] = [textAt(platform, 'os'), textAt(platform, 'architecture')];
  return os === undefined || architecture === undefined ? undefined : `${os}/${architecture}`;
}

function textAt(value: unknown, name: string): string | undefined {
  const found = valueAt(value, name);
  return typeof found === 'string' ? found : undefined;
}

function notAnIndex(file: string): ImageError {
  return new ImageError(`${file} is not the index of an OCI layout`);
}

function choices(entries: readonly IndexEntry[]): string {
  const tags = entries.map(({ tag }) => tag).filter((tag) => tag !== undefined);
  return tags.length === 0 ? '' : ` (it has ${tags.join(', ')})`;
}
