// Tests archives that different programs read differently. The check of an imported layer must refuse each of them,
// because umoci, which unpacks the layer, may find other names in it than the check. Nothing is unpacked here.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { link, mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { promisify } from 'node:util';
import { archive, block, GNU_MAGIC, gnuLong, pax, sign } from './support/tar-blocks.ts';
import { listWithJudge, startTarLister, type TarLister } from './support/tar-lister.ts';

const execute = promisify(execFile);
/** A name that makes umoci remove the folder above. */
const EVIL = 'a/.wh...';
const hidden = block({ name: EVIL, data: 'x' });
const plain = block({ name: 'plain' });
const named = (path: string) => pax([['path', path]]);

/** Returns the archive's first header after `change`, with the right checksum. */
function changed(bytes: Buffer, change: (header: Buffer) => void): Buffer {
  change(bytes);
  sign(bytes);
  return bytes;
}

const MIXED = /extended headers that contradict each other/;
const corpus: Record<string, [Buffer, RegExp]> = {
  'a name of GNU and then one of POSIX': [archive(gnuLong('L', EVIL), named('good'), plain), MIXED],
  'a name of POSIX and then one of GNU': [archive(named(EVIL), gnuLong('L', 'good'), plain), MIXED],
  'a link target of GNU and then one of POSIX': [
    archive(gnuLong('K', '../../x'), pax([['linkpath', 'good']]), block({ name: 'link', type: '1' })),
    MIXED,
  ],
  'a link target of GNU and a name of POSIX': [archive(gnuLong('K', 'x'), named('good'), plain), MIXED],
  'two names of GNU': [archive(gnuLong('L', 'good'), gnuLong('L', EVIL), plain), MIXED],
  'two extended headers of POSIX': [archive(named('good'), pax([['linkpath', 'x']]), block({ name: EVIL })), MIXED],
  'one key twice': [
    archive(
      pax([
        ['path', 'good'],
        ['path', EVIL],
      ]),
      plain,
    ),
    /a key twice/,
  ],
  'an extended header for all entries': [archive(pax([['path', EVIL]], 'g'), plain), /unusual type "g"/],
  'one for all entries after a name of POSIX': [archive(named('good'), pax([['a', 'b']], 'g'), plain), /type "g"/],
  'an empty name of POSIX': [archive(named(''), block({ name: EVIL })), /empty or holds a null byte/],
  'an empty link target of POSIX': [
    archive(pax([['linkpath', '']]), block({ name: 'x', type: '2', linkName: 'y' })),
    /empty/,
  ],
  'an empty size of POSIX': [archive(pax([['size', '']]), block({ name: 'x', size: 512 }), plain), /empty/],
  'a name of POSIX with a null byte': [archive(named('good\0'), plain), /null byte/],
  'an empty name of GNU': [archive(gnuLong('L', ''), block({ name: EVIL })), /long name is empty/],
  'a name of GNU with a null byte inside': [archive(gnuLong('L', 'good\0x'), plain), /null byte/],
  'a name that belongs to no entry': [archive(plain, gnuLong('L', 'x')), /ends after an extended header/],
  'a record that is longer than its header': [
    archive(block({ type: 'x', data: '99 path=good\n' }), plain),
    /is damaged/,
  ],
  'a record without a key': [archive(block({ type: 'x', data: '6 =ab\n' }), plain), /is damaged/],
  'a size in hexadecimal': [archive(pax([['size', '0x200']]), block({ name: 'x' }), hidden), /impossible size/],
  'a size with a sign': [archive(pax([['size', '+512']]), block({ name: 'x' }), hidden), /impossible size/],
  'a size that no number holds': [archive(pax([['size', '9'.repeat(20)]]), plain), /impossible size/],
  'null bytes before a size': [archive(block({ name: 'x', size: '\x0000000001000', data: hidden })), /impossible size/],
  'a negative size': [archive(block({ name: 'x', size: '\xff'.repeat(12) })), /impossible size/],
  'a large binary size': [archive(block({ name: 'x', size: `\x80${'\xff'.repeat(11)}` })), /impossible size/],
  'a folder with a size': [archive(block({ name: 'x/', type: '5', size: 1024 }), hidden), /claims a size/],
  'a hard link with data': [
    archive(plain, block({ name: 'x', type: '1', linkName: 'plain', data: hidden })),
    /claims a size/,
  ],
  'a symlink with a size of POSIX': [
    archive(pax([['size', '1024']]), block({ name: 'x', type: '2', linkName: 'y' }), hidden),
    /claims a size/,
  ],
  'a file of the old kind with the name of a folder': [
    archive(block({ name: 'folder/', type: '\0', data: hidden })),
    /name of a folder/,
  ],
  'a file with the name of a folder': [archive(block({ name: 'folder/', data: hidden })), /name of a folder/],
  'a prefix in a header of GNU': [
    archive(block({ name: 'x', magic: GNU_MAGIC, prefix: EVIL })),
    /unusual header of GNU/,
  ],
  'a header of GNU with parts of a sparse file': [
    archive(block({ name: 'x', magic: GNU_MAGIC, prefix: `${'\0'.repeat(41)}00000000000` })),
    /unusual header of GNU/,
  ],
  'a header of star': [
    archive(
      changed(block({ name: 'x', prefix: `${'y'.repeat(131)}12345678901` }), (header) => header.write('tar\0', 508)),
    ),
    /unusual header/,
  ],
  'a header without a magic': [archive(block({ name: 'x', magic: '\0'.repeat(8) })), /neither a header of POSIX/],
  'a sparse file of GNU': [archive(block({ name: 'x', type: 'S', magic: GNU_MAGIC })), /sparse file/],
  'a sparse file of POSIX': [archive(pax([['GNU.sparse.name', EVIL]]), plain), /sparse file/],
  'a sparse file of star': [archive(pax([['SCHILY.realsize', '99']]), plain), /sparse file/],
  'a part of an archive on several volumes': [
    archive(block({ name: 'x', type: 'M', data: hidden })),
    /unusual type "M"/,
  ],
  'a contiguous file': [archive(block({ name: 'x', type: '7', data: hidden })), /unusual type "7"/],
  'an unknown type': [archive(block({ name: 'x', type: 'A', data: hidden })), /unusual type "A"/],
  'a second archive': [Buffer.concat([archive(plain), archive(hidden)]), /follows the end/],
  'an entry after one block of zeros': [Buffer.concat([plain, Buffer.alloc(512), hidden]), /follows the end/],
  'bytes after the end': [Buffer.concat([archive(plain), Buffer.from('x')]), /follows the end/],
  'a whiteout of the folder above, with a dot behind it': [archive(block({ name: `${EVIL}/.` })), /from within/],
  'a whiteout of the folder above, with two dots behind it': [archive(block({ name: `${EVIL}/x/..` })), /has "\.\."/],
  'a name with two dots that stays inside': [archive(block({ name: 'a/../b' })), /has "\.\."/],
  'a hard link to a name with two dots': [archive(block({ name: 'x', type: '1', linkName: 'a/../b' })), /with "\.\."/],
  'a hard link to nothing': [archive(block({ name: 'x', type: '1' })), /hard link/],
  'a root that is a symlink': [archive(block({ name: './', type: '2', linkName: '/etc' })), /root is not a folder/],
};

describe('the check of an archive refuses', () => {
  for (const [what, [bytes, why]] of Object.entries(corpus)) {
    test(`${what} (RES-12)`, async () => {
      assert.match((await listWithJudge(bytes)).error ?? 'accepted', why);
    });
  }
});

describe('the check of an archive', () => {
  let folder: string;
  let lister: TarLister;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'image-archives-'));
    lister = await startTarLister();
  });
  after(async () => {
    await lister.stop();
    await rm(folder, { recursive: true });
  });

  const assertSame = async (bytes: Buffer) => {
    const ours = await listWithJudge(bytes);
    assert.deepEqual([ours], await lister.list([bytes]));
    return ours.entries;
  };

  test('finds what Go finds in long names, binary sizes, times of GNU and a missing end (RES-12)', async () => {
    const long = `${'n'.repeat(200)}/${'n'.repeat(200)}`;
    const times = '00000000001 00000000002\0';
    const size = `\x80${'\0'.repeat(9)}\x02\0`;
    const entries = await assertSame(
      Buffer.concat([
        ...[
          gnuLong('K', `${long}/target`),
          gnuLong('L', `${long}/name`),
          block({ name: 'n', type: '2', linkName: 't' }),
        ],
        pax([
          ['path', `${long}/pax`],
          ['size', '3'],
          ['mtime', '1.5'],
          ['SCHILY.xattr.user.a', '\0=\n'],
        ]),
        block({ name: 'n', data: 'abc' }),
        ...[block({ name: 'old', type: '\0' }), block({ name: 'name', prefix: 'pre/fix' })],
        ...[block({ name: 'times', magic: GNU_MAGIC, prefix: times }), block({ name: 'd/', type: '5', size: '' })],
        block({ name: 'binary', size, data: Buffer.alloc(512) }),
      ]),
    );
    assert.equal(entries.length, 7);
  });

  test('accepts what GNU tar writes in each of its formats (RES-12)', async () => {
    const tree = path.join(folder, 'tree');
    const deep = path.join(tree, ...Array.from({ length: 5 }, () => 'd'.repeat(60)));
    await mkdir(deep, { recursive: true });
    await writeFile(path.join(deep, 'f'.repeat(120)), 'content');
    await link(path.join(deep, 'f'.repeat(120)), path.join(tree, 'hard'));
    await symlink('t'.repeat(200), path.join(tree, 'soft'));
    await execute('mkfifo', [path.join(tree, 'pipe')]);
    for (const format of ['gnu', 'oldgnu', 'posix']) {
      const file = path.join(folder, `${format}.tar`);
      const owner = ['--owner=user:3000000', '--group=group:3000000'];
      await execute('tar', [`--format=${format}`, ...owner, '-C', tree, '-cf', file, '.']);
      const entries = await assertSame(await readFile(file));
      assert.equal(entries.length, 10, format);
    }
  });
});
