// Builds OCI layouts byte by byte, because no tool would write a hostile image.
import { createHash } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { gzipSync, zstdCompressSync } from 'node:zlib';

export type TarItem = {
  name: string;
  /** The type character of the tar header: `0` file, `1` hard link, `2` symlink, `3` and `4` devices, `5` folder. */
  type?: string;
  mode?: number;
  uid?: number;
  gid?: number;
  linkName?: string;
  device?: readonly [number, number];
  data?: string | Buffer;
  /** The size that the tar header claims, if it should differ from the size of the data. */
  size?: number;
  /** Records of the extended tar header. Each value is a string whose characters are the bytes (Latin-1). */
  extended?: Record<string, string>;
};

export type Platform = { os: string; architecture: string };

export type LayoutImage = {
  layers: readonly (readonly TarItem[] | Buffer)[];
  config?: object;
  platform?: Platform;
  /** The media type of the layers. The default is gzip. */
  mediaType?: string;
  tag?: string;
  /** The layer digests that the image configuration claims, if they should differ from the real ones. */
  diffIds?: readonly string[];
  /** Whether the index entry names the platform, as in an index for several platforms. */
  isPlatformNamed?: boolean;
};

const LINUX: Platform = { os: 'linux', architecture: 'amd64' };
const MANIFEST = 'application/vnd.oci.image.manifest.v1+json';

/** Writes a layout whose index lists these images. Returns the layout's folder. */
export async function writeLayout(folder: string, ...images: readonly LayoutImage[]): Promise<string> {
  await mkdir(path.join(folder, 'blobs', 'sha256'), { recursive: true });
  const manifests = [];
  for (const image of images) {
    const { tag, isPlatformNamed, platform = LINUX } = image;
    manifests.push({
      ...(await writeManifest(folder, image)),
      ...(tag === undefined ? {} : { annotations: { 'org.opencontainers.image.ref.name': tag } }),
      ...(isPlatformNamed ? { platform } : {}),
    });
  }
  await writeFile(path.join(folder, 'index.json'), JSON.stringify({ schemaVersion: 2, manifests }));
  await writeFile(path.join(folder, 'oci-layout'), '{"imageLayoutVersion":"1.0.0"}');
  return folder;
}

async function writeManifest(folder: string, image: LayoutImage) {
  const { layers, config = {}, platform = LINUX, mediaType } = image;
  const archives = layers.map((layer) => (Buffer.isBuffer(layer) ? layer : tar(layer)));
  const diffIds = image.diffIds ?? archives.map(digestOf);
  const descriptors = [];
  for (const archive of archives) {
    const type = mediaType ?? 'application/vnd.oci.image.layer.v1.tar+gzip';
    descriptors.push(await writeBlob(folder, type, compressAs(type, archive)));
  }
  const configuration = { ...platform, config, rootfs: { type: 'layers', diff_ids: diffIds } };
  const described = await writeBlob(folder, 'application/vnd.oci.image.config.v1+json', JSON.stringify(configuration));
  const manifest = { schemaVersion: 2, mediaType: MANIFEST, config: described, layers: descriptors };
  return writeBlob(folder, MANIFEST, JSON.stringify(manifest));
}

function compressAs(mediaType: string, archive: Buffer): Buffer {
  if (mediaType.endsWith('gzip')) return gzipSync(archive);
  return mediaType.endsWith('zstd') ? zstdCompressSync(archive) : archive;
}

async function writeBlob(folder: string, mediaType: string, content: string | Buffer) {
  const bytes = Buffer.from(content);
  const digest = digestOf(bytes);
  await writeFile(path.join(folder, 'blobs', 'sha256', digest.slice('sha256:'.length)), bytes);
  return { mediaType, digest, size: bytes.length };
}

export function digestOf(bytes: Buffer): string {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

export function tar(items: readonly TarItem[]): Buffer {
  return Buffer.concat([...items.flatMap(tarItem), Buffer.alloc(1024)]);
}

function tarItem(item: TarItem): Buffer[] {
  const { extended = {} } = item;
  const long = item.name.length > 100 ? { path: item.name } : {};
  const records = Object.entries({ ...long, ...extended }).map(([key, value]) => record(key, value));
  const data = Buffer.from(item.data ?? '');
  const own = [header({ ...item, name: item.name.slice(0, 100) }, data.length), data, padding(data.length)];
  if (records.length === 0) return own;
  const body = Buffer.from(records.join(''), 'latin1');
  return [header({ name: 'pax', type: 'x' }, body.length), body, padding(body.length), ...own];
}

/** Encodes a record of the extended tar header as `<length of this line> <key>=<value>` and a line feed. */
function record(key: string, value: string): string {
  const rest = ` ${key}=${value}\n`;
  const length = [1, 2, 3, 4, 5].map((digits) => rest.length + digits).find((sum, at) => String(sum).length === at + 1);
  return `${length}${rest}`;
}

function header(item: TarItem, dataLength: number): Buffer {
  const { name, type = '0', mode = 0o644, uid = 0, gid = 0, linkName = '', device = [0, 0], size = dataLength } = item;
  const block = Buffer.alloc(512);
  const octal = (value: number, digits: number) => `${value.toString(8).padStart(digits, '0')}\0`;
  block.write(name, 0, 100, 'latin1');
  block.write(octal(mode, 7) + octal(uid, 7) + octal(gid, 7) + octal(size, 11) + octal(0, 11), 100);
  block.write(type + linkName, 156, 101, 'latin1');
  block.write('ustar\0' + '00', 257);
  block.write(octal(device[0], 7) + octal(device[1], 7), 329);
  block.fill(' ', 148, 156);
  const sum = block.reduce((total, byte) => total + byte, 0);
  block.write(`${octal(sum, 6)} `, 148);
  return block;
}

function padding(length: number): Buffer {
  return Buffer.alloc((512 - (length % 512)) % 512);
}
