// Generates an empty qcow2 overlay without QEMU's tools. qemu-img takes 6 ms, and a snapshot waits for that. The file
// consists of three pages that depend only on the disk's size and the name of the backing file. Pure functions.
// (Format: QEMU docs/interop/qcow2.txt.)

const MAGIC = 'QFI\xfb';
const CLUSTER_BITS = 16;
const CLUSTER = 1 << CLUSTER_BITS;
const VERSION = 3;
const HEADER_BYTES = 112;
const BACKING_FORMAT = 0xe2792aca;
/** A second-level table fills one cluster and has 8 bytes for each cluster of data. This is how much data it covers. */
const BYTES_PER_L1_ENTRY = (CLUSTER / 8) * CLUSTER;
/** The file contains the header, the refcount table, a refcount block, and then the empty first-level table. */
const TABLE_AT = { refcounts: CLUSTER, firstBlock: 2 * CLUSTER, level1: 3 * CLUSTER } as const;
/** Each refcount has 16 bits (2 to the power of this number). */
const REFCOUNT_ORDER = 4;
const MAX_NAME_BYTES = 1023;

export type OverlayBytes = {
  /** Size of the file in bytes. Parts outside `pages` are holes. */
  fileBytes: number;
  pages: { offset: number; bytes: Buffer }[];
};

/**
 * Returns an empty overlay for a disk of `diskBytes` (a multiple of 512). `below`: the backing file, named in the
 * header for people and their tools only. VMs get each layer as an explicit argument and ignore the header. Throws when
 * the path is too long.
 */
export function emptyOverlay(diskBytes: number, below: { path: string; format: 'raw' | 'qcow2' }): OverlayBytes {
  const level1Entries = Math.ceil(diskBytes / BYTES_PER_L1_ENTRY);
  const level1Clusters = Math.ceil((level1Entries * 8) / CLUSTER);
  const clusters = 3 + level1Clusters;
  const refcounts = Buffer.alloc(8);
  refcounts.writeBigUInt64BE(BigInt(TABLE_AT.firstBlock));
  const firstBlock = Buffer.alloc(2 * clusters);
  for (let cluster = 0; cluster < clusters; cluster++) firstBlock.writeUInt16BE(1, 2 * cluster);
  return {
    fileBytes: clusters * CLUSTER,
    pages: [
      { offset: 0, bytes: header(diskBytes, level1Entries, below) },
      { offset: TABLE_AT.refcounts, bytes: refcounts },
      { offset: TABLE_AT.firstBlock, bytes: firstBlock },
    ],
  };
}

export type OverlayHeader = { diskBytes: number; backingPath: string | undefined };

/** Parses the first cluster of a qcow2 file. Throws when it is not qcow2. */
export function parseHeader(bytes: Buffer): OverlayHeader {
  if (bytes.length < HEADER_BYTES || bytes.toString('latin1', 0, 4) !== MAGIC)
    throw new Error('it is not a qcow2 disk');
  const nameAt = Number(bytes.readBigUInt64BE(8));
  const nameBytes = bytes.readUInt32BE(16);
  const hasName = nameAt > 0 && nameBytes <= MAX_NAME_BYTES && nameAt + nameBytes <= bytes.length;
  const backingPath = hasName ? bytes.toString('utf8', nameAt, nameAt + nameBytes) : undefined;
  return { diskBytes: Number(bytes.readBigUInt64BE(24)), backingPath };
}

function header(diskBytes: number, level1Entries: number, below: { path: string; format: string }): Buffer {
  const format = Buffer.from(below.format);
  const name = Buffer.from(below.path);
  if (name.length > MAX_NAME_BYTES) throw new Error(`the path ${below.path} is longer than qcow2 allows`);
  const extension = Buffer.alloc(8 + Math.ceil(format.length / 8) * 8);
  extension.writeUInt32BE(BACKING_FORMAT, 0);
  extension.writeUInt32BE(format.length, 4);
  format.copy(extension, 8);
  const endOfExtensions = Buffer.alloc(8);
  const fields = Buffer.alloc(HEADER_BYTES);
  fields.write(MAGIC, 0, 'latin1');
  fields.writeUInt32BE(VERSION, 4);
  fields.writeBigUInt64BE(BigInt(HEADER_BYTES + extension.length + endOfExtensions.length), 8);
  fields.writeUInt32BE(name.length, 16);
  fields.writeUInt32BE(CLUSTER_BITS, 20);
  fields.writeBigUInt64BE(BigInt(diskBytes), 24);
  fields.writeUInt32BE(level1Entries, 36);
  fields.writeBigUInt64BE(BigInt(TABLE_AT.level1), 40);
  fields.writeBigUInt64BE(BigInt(TABLE_AT.refcounts), 48);
  fields.writeUInt32BE(1, 56);
  fields.writeUInt32BE(REFCOUNT_ORDER, 96);
  fields.writeUInt32BE(HEADER_BYTES, 100);
  return Buffer.concat([fields, extension, endOfExtensions, name]);
}
