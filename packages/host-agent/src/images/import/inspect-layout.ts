/**
 * Inspects an OCI layout before anything is unpacked from it. This is a program of its own, which runs confined. It
 * reads every byte once and checks everything that the layout claims about itself. Arguments: the layout's folder, then
 * the limits as JSON. Prints a LayoutReport, or `{"refusal": "…"}` when the image must not be imported.
 */
import { createHash } from 'node:crypto';
import { createReadStream, type ReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { createGunzip } from 'node:zlib';
import { readTarEntries, type TarEntry } from './tar-entries.ts';

export interface LayoutLimits {
  /** Limit for all unpacked layers together, in bytes. */
  bytes: number;
  /** Limit for the number of files in all layers together. */
  files: number;
}

export interface LayoutReport {
  architecture: string;
  os: string;
  /** The `config` object of the image's configuration, unchecked. */
  config: unknown;
  layers: number;
  bytes: number;
  files: number;
}

/** Largest manifest or configuration, in bytes; registries have the same limit. */
const DOCUMENT_MAX = 4 * 1024 * 1024;
const LAYERS_MAX = 512;
const NAME_MAX = 255;

class Refusal extends Error {}

type Descriptor = { mediaType: string; digest: string; size: number };

/** Inspects the layout and returns a report. Throws Refusal with the reason. */
async function inspectLayout(folder: string, limits: LayoutLimits): Promise<LayoutReport> {
  const index = await readDocument(path.join(folder, 'index.json'));
  const descriptors = listAt(index, 'manifests').map(toDescriptor);
  const [only] = descriptors;
  if (only === undefined || descriptors.length > 1) throw new Refusal('its index does not name one image');
  const manifest = await readBlobDocument(folder, only);
  const config = await readBlobDocument(folder, toDescriptor(valueAt(manifest, 'config')));
  const layers = listAt(manifest, 'layers').map(toDescriptor);
  const diffIds = listAt(valueAt(config, 'rootfs'), 'diff_ids');
  if (layers.length > LAYERS_MAX) throw new Refusal(`it has ${layers.length} layers, and ${LAYERS_MAX} are allowed`);
  if (layers.length !== diffIds.length) throw new Refusal('its configuration does not have the layers of its manifest');

  const count = new LayerCount(limits);
  for (const [at, layer] of layers.entries()) await inspectLayer(folder, layer, diffIds[at], count);
  return {
    architecture: String(valueAt(config, 'architecture')),
    os: String(valueAt(config, 'os')),
    config: valueAt(config, 'config') ?? {},
    layers: layers.length,
    ...count.total,
  };
}

/** Adds up the size of the layers, and throws Refusal as soon as a limit is exceeded. */
class LayerCount {
  readonly #limits: LayoutLimits;
  #bytes = 0;
  #files = 0;

  constructor(limits: LayoutLimits) {
    this.#limits = limits;
  }

  get total(): LayoutLimits {
    return { bytes: this.#bytes, files: this.#files };
  }

  addBytes(bytes: number): void {
    this.#bytes += bytes;
    if (this.#bytes <= this.#limits.bytes) return;
    const gigabytes = (this.#limits.bytes / 2 ** 30).toFixed(1);
    throw new Refusal(`it unpacks to more than ${gigabytes} GB; --max-gb allows more`);
  }

  addFile(): void {
    if (++this.#files > this.#limits.files) {
      throw new Refusal(`it holds more than ${this.#limits.files} files; --max-files allows more`);
    }
  }
}

async function inspectLayer(folder: string, layer: Descriptor, diffId: unknown, count: LayerCount): Promise<void> {
  const file = await openBlob(folder, layer);
  const compressed = createHash('sha256');
  const unpacked = createHash('sha256');
  const hashed = (async function* () {
    for await (const chunk of unpackedChunks(file, layer, (part) => compressed.update(part))) {
      count.addBytes(chunk.length);
      unpacked.update(chunk);
      yield chunk;
    }
  })();
  try {
    for await (const entry of readTarEntries(hashed)) {
      count.addFile();
      checkEntry(entry);
    }
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new Refusal(`its layer ${layer.digest} cannot be read: ${why}`);
  } finally {
    file.destroy();
  }
  requireDigest(layer.digest, compressed.digest('hex'), 'a layer');
  requireDigest(String(diffId), unpacked.digest('hex'), 'an unpacked layer');
}

async function* unpackedChunks(
  file: ReadStream,
  layer: Descriptor,
  onRead: (chunk: Buffer) => void,
): AsyncGenerator<Buffer> {
  file.on('data', (chunk) => onRead(Buffer.from(chunk)));
  if (/\.tar$/.test(layer.mediaType)) return yield* file;
  if (!/[.+]gzip$/.test(layer.mediaType)) {
    throw new Refusal(`its layers are of the kind ${layer.mediaType}, and only tar and tar+gzip can be unpacked`);
  }
  const gunzip = createGunzip();
  file.on('error', (error) => gunzip.destroy(error));
  yield* file.pipe(gunzip);
  // The gzip stream may end before the file does. The rest is read too, because the digest covers it.
  for await (const _ of file);
}

/** Throws Refusal for entries that ordinary images do not contain or that unpackers have handled wrongly. */
function checkEntry({ name, type, linkName, isSparse }: TarEntry): void {
  if (isSparse) throw new Refusal(`${shown(name)} is a sparse file, whose size nobody can trust`);
  if (climbs(name)) throw new Refusal(`${shown(name)} is outside of the image`);
  if (type === '1' && climbs(linkName))
    throw new Refusal(`${shown(name)} is a hard link to a file outside of the image`);
  const parts = name.split('/');
  if (parts.some((part) => part.length > NAME_MAX)) {
    throw new Refusal(`${shown(name)} is longer than the ${NAME_MAX} bytes that a file name may have`);
  }
  // A whiteout of "." or ".." would remove its own folder or the parent folder.
  if (/^\.wh\.\.{0,2}$/.test(parts.findLast((part) => part !== '') ?? '')) {
    throw new Refusal(`${shown(name)} removes a folder from within`);
  }
}

/** Whether `..` parts lead above the root. */
function climbs(name: string): boolean {
  let depth = 0;
  for (const part of name.split('/')) {
    if (part === '..') depth--;
    else if (part !== '' && part !== '.') depth++;
    if (depth < 0) return true;
  }
  return false;
}

function shown(name: string): string {
  const printable = Buffer.from(name, 'latin1').toString().replace(/\p{C}/gu, '?');
  return printable.length > 120 ? `${printable.slice(0, 117)}...` : printable;
}

async function openBlob(folder: string, { digest, size }: Descriptor): Promise<ReadStream> {
  const file = path.join(folder, 'blobs', 'sha256', digest.slice('sha256:'.length));
  const found = await stat(file).catch(() => undefined);
  if (!found?.isFile()) throw new Refusal(`its blob ${digest} is missing`);
  if (found.size !== size) throw new Refusal(`its blob ${digest} has ${found.size} bytes instead of ${size}`);
  return createReadStream(file, { highWaterMark: 1 << 18 });
}

async function readBlobDocument(folder: string, descriptor: Descriptor): Promise<unknown> {
  if (descriptor.size > DOCUMENT_MAX) throw new Refusal('its manifest or configuration is too long');
  const chunks: Buffer[] = [];
  for await (const chunk of await openBlob(folder, descriptor)) chunks.push(Buffer.from(chunk));
  const bytes = Buffer.concat(chunks);
  requireDigest(descriptor.digest, createHash('sha256').update(bytes).digest('hex'), 'a manifest or configuration');
  return parseDocument(bytes.toString());
}

async function readDocument(file: string): Promise<unknown> {
  if ((await stat(file)).size > DOCUMENT_MAX) throw new Refusal('its index is too long');
  return parseDocument(await readFile(file, 'utf8'));
}

function parseDocument(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    throw new Refusal('its manifest or configuration is not JSON');
  }
}

function requireDigest(wanted: string, found: string, what: string): void {
  if (wanted !== `sha256:${found}`) throw new Refusal(`${what} has the digest sha256:${found} instead of ${wanted}`);
}

function toDescriptor(value: unknown): Descriptor {
  const [mediaType, digest, size] = ['mediaType', 'digest', 'size'].map((name) => valueAt(value, name));
  const isSha256 = typeof digest === 'string' && /^sha256:[0-9a-f]{64}$/.test(digest);
  if (
    typeof mediaType === 'string' &&
    isSha256 &&
    typeof size === 'number' &&
    Number.isSafeInteger(size) &&
    size >= 0
  ) {
    return { mediaType, digest, size };
  }
  throw new Refusal('its manifest names a part that is not valid');
}

function listAt(value: unknown, name: string): unknown[] {
  const list = valueAt(value, name);
  if (Array.isArray(list)) return list;
  throw new Refusal(`its manifest or configuration lacks "${name}"`);
}

function valueAt(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}

const [folder = '', limits = ''] = process.argv.slice(2);
try {
  console.log(JSON.stringify(await inspectLayout(folder, JSON.parse(limits))));
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  console.log(JSON.stringify({ refusal: error.message }));
}
