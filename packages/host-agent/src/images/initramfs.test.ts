import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { describe, test } from 'node:test';
import { withoutSignature } from './initramfs.ts';
import { writeNewc } from './newc.ts';

describe('initramfs archive', () => {
  const archive = writeNewc([
    { kind: 'folder', path: 'dev', mode: 0o755 },
    { kind: 'character device', path: 'dev/console', mode: 0o600, major: 5, minor: 1 },
    { kind: 'file', path: 'init', mode: 0o755, content: Buffer.from('#!odd') },
    { kind: 'file', path: 'empty', mode: 0o644, content: Buffer.alloc(0) },
  ]);

  test('cpio lists the entries that were written', () => {
    const listing = spawnSync('cpio', ['-tv', '--numeric-uid-gid'], { input: archive, encoding: 'utf8' });
    const lines = listing.stdout
      .trim()
      .split('\n')
      .map((line) => line.replace(/\s+/g, ' '));
    assert.match(lines[0] ?? '', /^drwxr-xr-x 2 0 0 0 .* dev$/);
    assert.match(lines[1] ?? '', /^crw------- 1 0 0 5, 1 .* dev\/console$/);
    assert.match(lines[2] ?? '', /^-rwxr-xr-x 1 0 0 5 .* init$/);
    assert.match(lines[3] ?? '', /^-rw-r--r-- 1 0 0 0 .* empty$/);
    assert.equal(lines.length, 4);
  });

  test('cpio extracts the unchanged content', () => {
    const content = spawnSync('cpio', ['-i', '--to-stdout', '--quiet', 'init'], { input: archive });
    assert.equal(content.stdout.toString(), '#!odd');
  });
});

describe('module signature', () => {
  const mark = Buffer.from('~Module signature appended~\n');
  const head = Buffer.alloc(12);
  head.writeUInt32BE(5, 8);

  test('is removed', () => {
    const signed = Buffer.concat([Buffer.from('module'), Buffer.from('12345'), head, mark]);
    assert.equal(withoutSignature(signed).toString(), 'module');
  });

  test('a module without a signature stays unchanged', () => {
    assert.equal(withoutSignature(Buffer.from('module')).toString(), 'module');
    assert.equal(withoutSignature(mark).length, mark.length);
  });
});
