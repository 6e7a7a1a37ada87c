/**
 * Turns an unpacked tree into a disk with the same format as all images. The tree is untrusted, so mke2fs and e2fsck
 * run confined.
 */
import { truncate, writeFile } from 'node:fs/promises';
import { runConfined } from './confinement.ts';

/** The same file system features as in finish-rootfs.sh, which explains them. A test compares the two lists. */
export const FEATURES =
  'none,has_journal,ext_attr,resize_inode,dir_index,filetype,extent,flex_bg,' +
  'sparse_super,large_file,huge_file,uninit_bg,dir_nlink,extra_isize';
export const BYTES_PER_INODE = 16_384;
const BLOCKS_OF_1_TIB = 268_435_456;
const GIB = 2 ** 30;

/** Free space, in bytes, on the smallest root disk allowed for an image: enough for logs, a package and a checkout. */
const ROOM_BYTES = 512 * 1024 * 1024;
const JOURNAL_BYTES = 16 * 1024 * 1024;

/**
 * Returns the smallest disk size in GiB for this content: `bytes` of data and `files` inodes, file system metadata, and
 * free space.
 */
export function diskSizeGb(bytes: number, files: number): number {
  const metadata = JOURNAL_BYTES + bytes / 32;
  const forBlocks = Math.ceil((bytes + metadata + ROOM_BYTES) / GIB);
  // A quarter more inodes than the image has files, for the machine's own files.
  const forInodes = Math.ceil((files * 1.25 * BYTES_PER_INODE) / GIB);
  return Math.max(1, forBlocks, forInodes);
}

/** Returns the allocated bytes and the number of files of the tree `<scratch>/tree`. Throws ImageError. */
export async function measureTree(scratch: string): Promise<{ bytes: number; files: number }> {
  const measure = async (...options: string[]) => {
    const output = await runConfined({
      command: 'du',
      args: ['--summarize', '--one-file-system', ...options, '/work/tree'],
      readOnly: [[scratch, '/work']],
      writable: [],
      capabilities: ['DAC_READ_SEARCH'],
      fileBytes: 0,
    });
    return Number.parseInt(output.toString(), 10);
  };
  const [allocated, apparent, files] = [
    await measure('--block-size=1'),
    await measure('--block-size=1', '--apparent-size'),
    await measure('--inodes'),
  ];
  return { bytes: Math.max(allocated, apparent), files };
}

/** Makes the file `disk` of `sizeGb` GiB from `<scratch>/tree` and checks it. Throws ImageError. */
export async function makeFileSystem(scratch: string, disk: string, sizeGb: number, uuid: string): Promise<void> {
  await writeFile(disk, '', { mode: 0o644 });
  await truncate(disk, sizeGb * GIB);
  const common = {
    readOnly: [[scratch, '/work']] as const,
    writable: [[disk, '/disk']] as const,
    capabilities: ['DAC_READ_SEARCH'] as const,
    fileBytes: sizeGb * GIB,
  };
  const layout = ['-b', '4096', '-I', '256', '-i', String(BYTES_PER_INODE), '-m', '0', '-J', 'size=16', '-O', FEATURES];
  const extended = `hash_seed=${uuid},resize=${BLOCKS_OF_1_TIB},root_owner=0:0,lazy_itable_init=0,lazy_journal_init=1`;
  await runConfined({
    ...common,
    command: 'mke2fs',
    args: ['-q', '-F', '-d', '/work/tree', '-L', 'sandbar-root', '-U', uuid, ...layout, '-E', extended, '/disk'],
    env: { MKE2FS_CONFIG: '/dev/null', E2FSPROGS_FAKE_TIME: '1754697600' },
  });
  await runConfined({ ...common, command: 'e2fsck', args: ['-f', '-n', '/disk'] });
}
