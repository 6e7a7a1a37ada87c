/**
 * Writes a cpio archive in "newc" format, which the kernel unpacks as its initramfs. The cpio tool does not suit: it
 * would need root to create /dev/console first, and it would copy owners and times from the file system, so two builds
 * would differ. Format: Documentation/driver-api/early-userspace/buffer-format.rst of the Linux kernel.
 */

export type CpioEntry =
  | { kind: 'folder'; path: string; mode: number }
  | { kind: 'file'; path: string; mode: number; content: Buffer }
  | { kind: 'character device'; path: string; mode: number; major: number; minor: number };

const TYPE_BITS = { folder: 0o040000, file: 0o100000, 'character device': 0o020000 } as const;

/** Returns an archive with the entries in the given order, all owned by root. A folder must come before its content. */
export function writeNewc(entries: readonly CpioEntry[]): Buffer {
  const parts = entries.map((entry, index) => entryBytes(entry, index + 1));
  return Buffer.concat([...parts, record({ inode: 0, mode: 0, links: 1, path: 'TRAILER!!!' }, Buffer.alloc(0), 0, 0)]);
}

function entryBytes(entry: CpioEntry, inode: number): Buffer {
  const content = entry.kind === 'file' ? entry.content : Buffer.alloc(0);
  const [major, minor] = entry.kind === 'character device' ? [entry.major, entry.minor] : [0, 0];
  const links = entry.kind === 'folder' ? 2 : 1;
  return record({ inode, mode: TYPE_BITS[entry.kind] | entry.mode, links, path: entry.path }, content, major, minor);
}

interface RecordHead {
  inode: number;
  mode: number;
  links: number;
  path: string;
}

function record(head: RecordHead, content: Buffer, major: number, minor: number): Buffer {
  const name = `${head.path}\0`;
  const [owner, group, time, deviceMajor, deviceMinor, checksum] = [0, 0, 0, 0, 0, 0];
  const fields = [
    ...[head.inode, head.mode, owner, group, head.links, time, content.length],
    ...[deviceMajor, deviceMinor, major, minor, Buffer.byteLength(name), checksum],
  ];
  const header = `070701${fields.map((field) => field.toString(16).padStart(8, '0')).join('')}${name}`;
  return Buffer.concat([padded(Buffer.from(header)), padded(content)]);
}

function padded(bytes: Buffer): Buffer {
  return Buffer.concat([bytes, Buffer.alloc(-bytes.length & 3)]);
}
