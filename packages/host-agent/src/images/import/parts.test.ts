// Tests the parts of an import that need no image: resolving paths, the size of a disk, what a confined program can
// access.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { type confinedArgs, runConfined, TREE_CAPABILITIES } from './confinement.ts';
import { BYTES_PER_INODE, diskSizeGb, FEATURES } from './file-system.ts';
import { requireTools } from './tools.ts';
import { makeFolderInTree } from './tree.ts';

const isRoot = process.getuid?.() === 0;
const FINISH_SCRIPT = path.join(import.meta.dirname, '..', 'finish-rootfs.sh');

let folder: string;
beforeEach(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'image-parts-'));
});
afterEach(() => rm(folder, { recursive: true }));

describe('a folder in a tree', () => {
  test('is resolved through symlinks as a machine would, and created when missing', async () => {
    await symlink('/usr/lib', path.join(folder, 'lib'));
    await symlink('../../../..', path.join(folder, 'up'));
    assert.equal(await makeFolderInTree(folder, '/lib/modules'), path.join(folder, 'usr/lib/modules'));
    assert.equal(await makeFolderInTree(folder, '/up/up/../srv'), path.join(folder, 'srv'));
    assert.ok((await stat(path.join(folder, 'usr/lib/modules'))).isDirectory());
  });

  test('is refused behind a circular symlink and in place of a file', async () => {
    await symlink('loop', path.join(folder, 'loop'));
    await writeFile(path.join(folder, 'file'), '');
    await assert.rejects(makeFolderInTree(folder, '/loop/a'), { name: 'ImageError', message: /have no end/ });
    const long = { name: 'ImageError', message: /a path that is too long/ };
    await assert.rejects(makeFolderInTree(folder, `/${'x'.repeat(256)}`), long);
    await assert.rejects(makeFolderInTree(folder, '/file/a'), { name: 'ImageError', message: /not a folder/ });
  });
});

describe('a disk of an import', () => {
  test("has space for its content and for the machine's own files", () => {
    assert.equal(diskSizeGb(0, 0), 1);
    assert.equal(diskSizeGb(600 * 2 ** 20, 1000), 2);
    assert.equal(diskSizeGb(0, 100_000), 2);
    assert.equal(diskSizeGb(10 * 2 ** 30, 1000), 11);
  });

  test('has the same format as a disk built from a recipe', async () => {
    const script = await readFile(FINISH_SCRIPT, 'utf8');
    const [first, second] = [...script.matchAll(/^features=(.*)$/gm)].map((match) => match[1]);
    assert.equal(`${first}${second?.replace('$features', '')}`, FEATURES);
    assert.match(script, new RegExp(`-b 4096 -I 256 -i ${BYTES_PER_INODE} -m 0 -J size=16`));
    assert.match(script, /resize=\$blocks_of_1_tib,root_owner=0:0,lazy_itable_init=0,lazy_journal_init=1/);
  });
});

function commandLine(pid: string): string {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'latin1');
  } catch {
    return '';
  }
}

describe('a confined program (ISO-8)', { skip: !isRoot }, () => {
  const run = (script: string, capabilities: Parameters<typeof confinedArgs>[0]['capabilities'] = TREE_CAPABILITIES) =>
    runConfined({
      command: 'sh',
      args: ['-c', script],
      readOnly: [],
      writable: [[folder, '/tree']],
      capabilities,
      fileBytes: 1024 * 1024,
      env: { NAME: 'value' },
    }).then(String);

  test('sees the distribution and its own folder, but no other files or processes of the host', async () => {
    process.env.SANDBAR_TEST_SECRET = 'secret';
    const seen = await run(
      'ls -A / /dev; env; ls -d /proc/[0-9]*; ls /etc /home /root /var 2>/dev/null; cat /proc/net/dev',
    );
    delete process.env.SANDBAR_TEST_SECRET;
    const root = ['bin', 'dev', 'lib', 'lib64', 'proc', 'sbin', 'tree', 'usr'];
    assert.deepEqual(seen.match(/^\/:\n([\s\S]*?)\n\n/)?.[1]?.split('\n'), root);
    assert.match(seen, /\/dev:\nnull\n/);
    assert.match(seen, /NAME=value/);
    assert.doesNotMatch(seen, /SECRET|eth|ens|wlan/);
    assert.ok((seen.match(/\/proc\/\d+/g) ?? []).length <= 4);
  });

  test('can write only to its own folder, cannot open a device that it made, and cannot mount', async () => {
    await run('echo x > /tree/file; mknod /tree/null c 1 3; mknod /tree/disk b 254 0; chown 5:6 /tree/file');
    assert.equal((await stat(path.join(folder, 'file'))).uid, 5);
    for (const script of [
      'echo x > /x',
      'echo x > /usr/x',
      'echo x > /tree/null',
      'mknod /tree/zero c 1 5; head -c 1 /tree/zero',
      'mount -t tmpfs tmpfs /tree',
      'unshare --mount true',
      'yes | head -c 2000000 > /tree/large',
    ]) {
      await assert.rejects(run(script), { name: 'ImageError' }, script);
    }
  });

  test('ends with the process that started it, even if that was killed', { timeout: 60_000 }, async () => {
    const request = {
      command: 'sleep',
      args: ['86400.25'],
      readOnly: [],
      writable: [],
      capabilities: [],
      fileBytes: 0,
    };
    const program = `(await import('${import.meta.dirname}/confinement.ts')).runConfined(${JSON.stringify(request)})`;
    const starter = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: 'ignore' });
    const sleepers = () =>
      readdirSync('/proc').filter(
        (pid) => commandLine(pid).startsWith('sleep\0') && commandLine(pid).includes('86400.25'),
      );
    while (sleepers().length === 0) await setImmediate();
    starter.kill('SIGKILL');
    while (sleepers().length > 0) await setImmediate();
  });

  test('leaves no process when it is killed at its very start', { timeout: 60_000 }, async () => {
    await writeFile(path.join(folder, 'large'), Buffer.alloc(8192));
    for (let round = 0; round < 40; round++) {
      const endless = runConfined({
        command: 'sleep',
        args: ['86400.5'],
        readOnly: [],
        writable: [[folder, '/tree']],
        capabilities: TREE_CAPABILITIES,
        fileBytes: 1024,
        total: { folder, bytes: 4096 },
      });
      await assert.rejects(endless, { name: 'ImageError', message: /has more than/ });
    }
    while (readdirSync('/proc').some((pid) => commandLine(pid).includes('86400.5'))) await setImmediate();
  });

  test('is killed when its files take more room together than they may', async () => {
    for (const write of ['yes | head -c 1000000', 'true']) {
      const endless = runConfined({
        command: 'sh',
        args: ['-c', `while i=$((i + 1)); do ${write} > /tree/$i; done`],
        readOnly: [],
        writable: [[folder, '/tree']],
        capabilities: TREE_CAPABILITIES,
        fileBytes: 1024 * 1024,
        total: { folder, bytes: 5_000_000 },
      });
      const killed = { name: 'ImageError', message: /has more than 0\.0 GB; --max-gb allows more/ };
      await assert.rejects(endless, killed, write);
    }
  });

  test('has limited memory', async () => {
    assert.match(await run('cat /proc/self/limits'), /^Max data size +4294967296 +4294967296/m);
  });

  test('has only the capabilities it was given', async () => {
    assert.match(await run('grep ^CapEff /proc/self/status', []), /^CapEff:\s+0{16}$/m);
    await assert.rejects(run('mknod /tree/null c 1 3', []), /not permitted/);
  });
});

test('the error for missing tools names all their packages at once', () => {
  const says = /needs skopeo and bubblewrap: apt-get install skopeo bubblewrap$/;
  assert.throws(() => requireTools('/cache', (program) => program === 'umoci', true), {
    name: 'ImageError',
    message: says,
  });
  requireTools('/cache', () => true, true);
  const asUser = { name: 'ImageError', message: /run it with sudo and SANDBAR_CACHE=\/cache$/ };
  assert.throws(() => requireTools('/cache', () => true, false), asUser);
});
