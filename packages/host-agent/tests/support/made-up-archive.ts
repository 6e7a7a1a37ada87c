// Makes up tar archives for the fuzzer: ordinary entries, the headers that programs read differently, and damage.
import type { Random } from './fuzzing.ts';
import { type Block, block, GNU_MAGIC, gnuLong, pax, sign } from './tar-blocks.ts';

const LONG = 'l'.repeat(90);
const NAMES = [
  ...([
    'a',
    'b',
    'dir',
    'dir/',
    'a/b',
    './a',
    '/a',
    '.',
    './',
    '',
    '/',
    'caf\xe9',
    `${LONG}/${LONG}`,
    'x'.repeat(100),
  ] as const),
  ...([
    '..',
    '../a',
    'a/..',
    'a/../../b',
    '.wh.a',
    '.wh.',
    '.wh..',
    '.wh...',
    'a/.wh...',
    'a/.wh.../.',
    'a\0b',
  ] as const),
  ...(['.wh..wh..opq', 'a/.wh..wh..opq/', 'a//b', 'a/./b', 'x'.repeat(256)] as const),
] as const;
const POSIX = 'ustar\x0000';
const KEYS = [
  'path',
  'path',
  'linkpath',
  'size',
  'mtime',
  'uid',
  'SCHILY.xattr.user.a',
  'GNU.sparse.name',
  'comment',
] as const;
const VALUES = [
  '',
  '0',
  '512',
  '1024',
  '0x200',
  '+512',
  ' 512',
  '1e3',
  '-1',
  '9'.repeat(20),
  '1.5',
  '\0',
  '\n',
  '=',
] as const;
const END = 1024;

/** Returns an archive of one to four entries. */
export function madeUpArchive(random: Random): Buffer {
  const parts: Buffer[] = [];
  for (let left = 1 + random.below(4); left > 0; left--) parts.push(...entry(random));
  const zeros = random.pick([END, END, END, 0, 512, 10_240, 100]);
  const behind = random.chance(0.04) ? entry(random) : [];
  const archive = Buffer.concat([...parts, Buffer.alloc(zeros), ...behind]);
  return random.chance(0.35) ? damaged(archive, random) : archive;
}

function entry(random: Random): Buffer[] {
  const parts: Buffer[] = [];
  while (random.chance(0.3)) parts.push(extended(random));
  return [...parts, block(ordinary(random))];
}

function extended(random: Random): Buffer {
  const kind = random.below(10);
  if (kind < 2) return gnuLong('L', random.pick(NAMES));
  if (kind < 3) return gnuLong('K', random.pick(NAMES));
  if (kind < 4)
    return block({
      type: random.pick(['x', 'L', 'K', 'g']),
      data: random.pick([...VALUES, '9 path=a\n', '10 path=a\n']),
    });
  const records = Array.from({ length: 1 + random.below(3) }, () => {
    const key = random.pick(KEYS);
    const isName = /path/.test(key) && random.chance(0.8);
    return [key, isName ? random.pick(NAMES) : random.pick(VALUES)] as const;
  });
  return pax(records, random.chance(0.05) ? 'g' : 'x');
}

function ordinary(random: Random): Block {
  const type = random.chance(0.92)
    ? random.pick(['0', '0', '0', '0', '\0', '1', '2', '3', '5', '5', '6'])
    : random.pick(['7', 'S', 'M', 'V', 'D', 'x']);
  const data = type === '0' || type === '\0' || random.chance(0.03) ? content(random) : Buffer.alloc(0);
  const fields: Block = { name: random.pick(NAMES), type, data, linkName: /[12]/.test(type) ? random.pick(NAMES) : '' };
  if (random.chance(0.15))
    fields.magic = random.pick([GNU_MAGIC, GNU_MAGIC, '\0'.repeat(8), 'ustar\0\0\0', 'ustar 00']);
  if (random.chance(0.15)) fields.prefix = random.pick([...NAMES, '00000000001 00000000002\0', `${LONG}12345678901`]);
  if (random.chance(0.15)) fields.size = size(data.length, random);
  return fields;
}

/**
 * Makes a file's content. Sometimes it is itself a tar header, so that a reader that uses a wrong size finds one more
 * entry.
 */
function content(random: Random): Buffer {
  const inner = random.chance(0.3) ? block({ name: random.pick(NAMES), magic: POSIX }) : Buffer.alloc(0);
  return Buffer.concat([inner, Buffer.alloc(random.pick([0, 0, 1, 511, 512, 513]), 'd')]);
}

function size(length: number, random: Random): string {
  const octal = length.toString(8);
  return random.pick([
    ...([
      `${octal} `,
      ` ${octal}`,
      octal.padStart(12, '0'),
      `\0${octal}`,
      `${octal}\0 7`,
      '',
      '8',
      '-1',
      '7'.repeat(12),
    ] as const),
    ...([
      `\x80${'\0'.repeat(9)}${String.fromCharCode(length >> 8, length & 255)}`,
      '\xff'.repeat(12),
      `\x80${'\xff'.repeat(11)}`,
    ] as const),
  ]);
}

/** Changes bytes of the archive. Most changed headers get a right checksum, because a wrong one is refused at once. */
function damaged(archive: Buffer, random: Random): Buffer {
  if (random.chance(0.1)) return archive.subarray(0, random.below(archive.length));
  const changed = Buffer.from(archive);
  for (let left = 1 + random.below(3); left > 0; left--) {
    const header = 512 * random.below(changed.length / 512);
    if (header + 512 > changed.length) continue;
    const length = random.pick([1, 1, 1, 2, 12]);
    const start = header + random.below(512 - length);
    const byte = random.pick([0, 0x20, 0x2e, 0x2f, 0x30, 0x37, 0x80, 0xff, random.below(256)]);
    changed.fill(byte, start, start + length);
    if (random.chance(0.85)) sign(changed.subarray(header, header + 512));
  }
  return changed;
}
