/**
 * Inspects an OCI layout before anything is unpacked from it: reads every byte once and checks everything that the
 * layout claims about itself.
 */
import { createHash } from 'node:crypto';
import { createReadStream, type ReadStream } from 'node:fs';
import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { createGunzip } from 'node:zlib';
import { judgeArchive } from './judge-archive.ts';
import {
  type Descriptor,
  DOCUMENT_MAX,
  type JobDefaults,
  parseConfiguration,
  parseIndex,
  parseManifest,
} from './layout-documents.ts';
import { Refusal } from './refusal.ts';

export interface LayoutLimits {
  /** Limit for all unpacked layers together, in bytes. */
  bytes: number;
  /** Limit for the number of files in all layers together. */
  files: number;
}

/** A layer whose blob and unpacked content have these digests. */
export type InspectedLayer = { digest: string; size: number; diffId: string; isGzip: boolean };

export interface LayoutReport {
  architecture: string;
  os: string;
  /** The image's defaults for jobs, unchecked. */
  config: JobDefaults;
  layers: InspectedLayer[];
  bytes: number;
  files: number;
}

/** Inspects the layout and returns a report. Throws Refusal with the reason. */
export async function inspectLayout(folder: string, limits: LayoutLimits): Promise<LayoutReport> {
  const manifest = parseManifest(await readBlob(folder, parseIndex(await readIndex(folder))));
  const { diffIds, ...configuration } = parseConfiguration(await readBlob(folder, manifest.config));
  if (manifest.layers.length !== diffIds.length) {
    throw new Refusal('its configuration does not have the layers of its manifest');
  }
  const count = new LayerCount(limits);
  const layers: InspectedLayer[] = [];
  for (const [at, layer] of manifest.layers.entries()) {
    layers.push(await inspectLayer(folder, layer, diffIds[at] ?? '', count));
  }
  return { ...configuration, layers, ...count.total };
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

async function inspectLayer(
  folder: string,
  layer: Descriptor,
  diffId: string,
  count: LayerCount,
): Promise<InspectedLayer> {
  const isGzip = isGzipLayer(layer.mediaType);
  const file = await openBlob(folder, layer);
  const compressed = createHash('sha256');
  const unpacked = createHash('sha256');
  const hashed = (async function* () {
    for await (const chunk of unpackedChunks(file, isGzip, (part) => compressed.update(part))) {
      count.addBytes(chunk.length);
      unpacked.update(chunk);
      yield chunk;
    }
  })();
  try {
    for await (const _ of judgeArchive(hashed)) count.addFile();
  } catch (error) {
    if (error instanceof Refusal) throw error;
    const why = error instanceof Error ? error.message : String(error);
    throw new Refusal(`its layer ${layer.digest} cannot be read: ${why}`);
  } finally {
    file.destroy();
  }
  requireDigest(layer.digest, compressed.digest('hex'), 'a layer');
  requireDigest(diffId, unpacked.digest('hex'), 'an unpacked layer');
  return { digest: layer.digest, size: layer.size, diffId, isGzip };
}

function isGzipLayer(mediaType: string): boolean {
  if (/[.+]gzip$/.test(mediaType)) return true;
  if (/\.tar$/.test(mediaType)) return false;
  throw new Refusal(`its layers are of the kind ${mediaType}, and only tar and tar+gzip can be unpacked`);
}

async function* unpackedChunks(
  file: ReadStream,
  isGzip: boolean,
  onRead: (chunk: Buffer) => void,
): AsyncGenerator<Buffer> {
  file.on('data', (chunk) => onRead(Buffer.from(chunk)));
  if (!isGzip) return yield* file;
  const gunzip = createGunzip();
  file.on('error', (error) => gunzip.destroy(error));
  yield* file.pipe(gunzip);
  // The gzip stream may end before the file does. The rest is read too, because the digest covers it.
  for await (const _ of file);
}

async function openBlob(folder: string, { digest, size }: Descriptor): Promise<ReadStream> {
  const file = path.join(folder, 'blobs', 'sha256', digest.slice('sha256:'.length));
  const found = await stat(file).catch(() => undefined);
  if (!found?.isFile()) throw new Refusal(`its blob ${digest} is missing`);
  if (found.size !== size) throw new Refusal(`its blob ${digest} has ${found.size} bytes instead of ${size}`);
  return createReadStream(file, { highWaterMark: 1 << 18 });
}

/** Reads a manifest or a configuration. */
async function readBlob(folder: string, descriptor: Descriptor): Promise<string> {
  if (descriptor.size > DOCUMENT_MAX) throw new Refusal('its manifest or configuration is too long');
  const chunks: Buffer[] = [];
  for await (const chunk of await openBlob(folder, descriptor)) chunks.push(Buffer.from(chunk));
  const bytes = Buffer.concat(chunks);
  requireDigest(descriptor.digest, createHash('sha256').update(bytes).digest('hex'), 'a manifest or configuration');
  return bytes.toString();
}

async function readIndex(folder: string): Promise<string> {
  const file = path.join(folder, 'index.json');
  if ((await stat(file)).size > DOCUMENT_MAX) throw new Refusal('its index is too long');
  return readFile(file, 'utf8');
}

function requireDigest(wanted: string, found: string, what: string): void {
  if (wanted !== `sha256:${found}`) throw new Refusal(`${what} has the digest sha256:${found} instead of ${wanted}`);
}
