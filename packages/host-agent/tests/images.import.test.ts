// Imports images made by the test, with the real skopeo and umoci. They contain what a hostile image might contain, and
// must not harm the host. Nothing is booted here.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, readFile, rm, stat, symlink, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { after, before, describe, test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { promisify } from 'node:util';
import { importImage } from '../src/images/import/import.ts';
import { judgeLayout } from '../src/images/import/unpack.ts';
import type { PublishedImage } from '../src/images/publish.ts';
import { loadImage } from '../src/images/store.ts';
import { KERNEL_VERSION, lookInto, writeCache } from './support/image-cache.ts';
import { digestOf, type LayoutImage, type TarItem, tar, writeLayout } from './support/oci-layout.ts';

const execute = promisify(execFile);
const CLI = new URL('../../cli/bin/sandbar.mjs', import.meta.url).pathname;
const isRoot = process.getuid?.() === 0;

let folder: string;
let cacheDir: string;
let count = 0;

before(async () => {
  folder = await mkdtemp(path.join(tmpdir(), 'image-import-'));
  cacheDir = path.join(folder, 'cache');
  await writeCache(cacheDir);
});
after(() => rm(folder, { recursive: true }));

type Options = { name?: string; maxGb?: number; maxFiles?: number; log?: (line: string) => void };

function importLayout(layout: string, { name = 'test', log = () => {}, ...limits }: Options = {}) {
  return importImage({ cacheDir, name, reference: `oci:${layout}`, isInsecure: false, log, ...limits });
}

const layoutOf = (...images: LayoutImage[]) => writeLayout(path.join(folder, `layout-${++count}`), ...images);

const importLayers = async (...layers: (readonly TarItem[] | Buffer)[]) => importLayout(await layoutOf({ layers }));

const look = ({ image }: PublishedImage, command: string) => lookInto(image.rootfs.path, command);
/** Returns the names in a folder of the image. */
const list = async (made: PublishedImage, inside: string) =>
  (await look(made, `ls -p ${inside}`)).split('\n').flatMap((line) => line.split('/')[5] ?? []);

const isThere = (file: string) =>
  stat(file).then(
    () => true,
    () => false,
  );

/** Returns the command lines of all processes on the host. */
async function commandLines(): Promise<string[]> {
  const pids = (await readdir('/proc')).filter((name) => /^\d+$/.test(name));
  return Promise.all(pids.map((pid) => readFile(`/proc/${pid}/cmdline`, 'latin1').catch(() => '')));
}

describe('an import keeps', { skip: !isRoot }, () => {
  test('modes with setuid, owners, extended attributes, capabilities, devices and links', async () => {
    // A security.capability attribute as the kernel stores it: VFS_CAP_REVISION_2, permitted CAP_NET_BIND_SERVICE.
    const capability = `\x01\x00\x00\x02\x00\x04${'\x00'.repeat(14)}`;
    const made = await importLayers([
      { name: 'bin', type: '5', mode: 0o755 },
      { name: 'bin/su', mode: 0o4755, data: 'su', extended: { 'SCHILY.xattr.user.note': 'kept' } },
      { name: 'bin/ping', mode: 0o755, data: 'ping', extended: { 'SCHILY.xattr.security.capability': capability } },
      { name: 'bin/hard', type: '1', linkName: 'bin/su' },
      { name: 'home', type: '5', mode: 0o2750, uid: 1000, gid: 1001 },
      { name: 'dev', type: '5', mode: 0o755 },
      { name: 'dev/disk', type: '4', mode: 0o600, device: [8, 1] },
      { name: 'absolute', type: '2', linkName: '/etc/passwd' },
      { name: 'pipe', type: '6' },
    ]);
    assert.match(await look(made, 'stat /bin/su'), /Type: regular +Mode: +04755[\s\S]*Links: 2/);
    assert.match(await look(made, 'ea_list /bin/su'), /user\.note \(4\) = "kept"/);
    assert.match(await look(made, 'ea_list /bin/ping'), /security\.capability \(20\) = 01 00 00 02 00 04 00/);
    assert.match(await look(made, 'stat /home'), /Mode: +02750[\s\S]*User: +1000 +Group: +1001/);
    assert.match(await look(made, 'stat /dev/disk'), /Type: block special[\s\S]*Device major\/minor number: 08:01/);
    assert.match(await look(made, 'stat /absolute'), /Type: symlink[\s\S]*Fast link dest: "\/etc\/passwd"/);
    assert.match(await look(made, 'stat /pipe'), /Type: FIFO/);
    assert.match(await look(made, 'stat /'), /Mode: +0755[\s\S]*User: +0 +Group: +0/);
  });

  test('the result of all layers: whiteouts, opaque folders, a file replaced by a folder and vice versa, a name used twice', async () => {
    const folderItem = (name: string): TarItem => ({ name, type: '5', mode: 0o755 });
    const made = await importLayers(
      [
        ...['gone', 'opaque', 'was-folder', 'kept'].map(folderItem),
        { name: 'gone/a', data: 'a' },
        { name: 'opaque/old', data: 'old' },
        { name: 'was-folder/inside', data: 'inside' },
        { name: 'was-file', data: 'file' },
        { name: 'kept/one', data: '1' },
        { name: 'kept/two', data: '2' },
        { name: 'twice', data: 'first' },
        { name: 'twice', data: 'second' },
      ],
      [
        { name: '.wh.gone' },
        folderItem('opaque'),
        { name: 'opaque/.wh..wh..opq' },
        { name: 'opaque/new', data: 'new' },
        { name: 'was-folder', data: 'a file now' },
        folderItem('was-file'),
        { name: 'was-file/inside', data: 'a folder now' },
        { name: 'kept/.wh.one' },
      ],
    );
    assert.equal(await look(made, 'cat /twice'), 'second');
    assert.equal(await look(made, 'cat /was-folder'), 'a file now');
    assert.equal(await look(made, 'cat /was-file/inside'), 'a folder now');
    assert.deepEqual(await list(made, '/opaque'), ['.', '..', 'new']);
    assert.deepEqual(await list(made, '/kept'), ['.', '..', 'two']);
    assert.ok(!(await list(made, '/')).includes('gone'));
  });

  test('layers in every compression format that registries use', async () => {
    const kinds = ['tar', 'tar+gzip', 'tar+zstd'].map((kind) => `application/vnd.oci.image.layer.v1.${kind}`);
    for (const mediaType of kinds) {
      const made = await importLayout(await layoutOf({ layers: [[{ name: 'kind', data: mediaType }]], mediaType }));
      assert.equal(await look(made, 'cat /kind'), mediaType);
    }
  });

  test('names of 255 bytes, and names that are not valid text', async () => {
    const long = 'x'.repeat(255);
    const made = await importLayers([
      { name: `${long}/${long}`, data: 'long' },
      { name: 'caf\xe9', data: 'latin' },
    ]);
    assert.equal(await look(made, `cat /${long}/${long}`), 'long');
    assert.ok((await list(made, '/')).includes('caf\xe9'));
  });

  test('the configuration for jobs, and creates a missing working directory', async () => {
    const config = { Env: ['A=1=2', 'EMPTY='], User: 'app:staff', WorkingDir: '/link/work', Entrypoint: ['/bin/run'] };
    const layers = [[{ name: 'link', type: '2', linkName: '/srv' }]];
    const made = await importLayout(await layoutOf({ layers, config }));
    const env = { A: '1=2', EMPTY: '' };
    assert.deepEqual(made.image.exec, { env, user: 'app:staff', cwd: '/link/work', entrypoint: ['/bin/run'] });
    assert.match(await look(made, 'stat /srv/work'), /Type: directory +Mode: +0755/);
    assert.ok((await list(made, '/lib/modules')).includes(KERNEL_VERSION));
  });
});

describe('an import refuses … (ISO-8)', { skip: !isRoot }, () => {
  const refusals: [string, readonly TarItem[], RegExp][] = [
    ['a name that climbs out', [{ name: '../escaped', data: 'x' }], /escaped is outside of the image/],
    ['one that climbs out in the middle', [{ name: 'a/../../escaped', data: 'x' }], /outside of the image/],
    [
      'a hard link to the outside',
      [{ name: 'h', type: '1', linkName: '../../etc/shadow' }],
      /hard link to a file outside/,
    ],
    ['a hard link to nothing', [{ name: 'h', type: '1', linkName: 'nothing' }], /umoci .*no such file/s],
    ['a name longer than a file system takes', [{ name: 'x'.repeat(256), data: 'x' }], /longer than the 255 bytes/],
    ['a whiteout of the folder above', [{ name: 'a/.wh...' }], /removes a folder from within/],
    ['a whiteout of the folder itself', [{ name: 'a/.wh..' }], /removes a folder from within/],
    ['a sparse file', [{ name: 's', extended: { 'GNU.sparse.major': '1' } }], /sparse file/],
    ['a size that no file has', [{ name: 'n', extended: { size: '-1' } }], /impossible size/],
    ['a file that ends too soon', [{ name: 'n', data: 'x', size: 1_000_000 }], /ends in the middle of a file/],
  ];
  for (const [what, items, why] of refusals) {
    test(what, async () => {
      await assert.rejects(importLayers(items), { name: 'ImageError', message: why });
      assert.ok(!(await isThere('/escaped')));
    });
  }

  test('a layer that is no tar archive, and a layer that differs from the manifest', async () => {
    await assert.rejects(importLayers(Buffer.alloc(4096, 'x')), /is not a tar archive/);
    const layers = [[{ name: 'a', data: 'a' }]];
    const mediaType = 'application/vnd.oci.image.layer.v1.tar+other';
    await assert.rejects(importLayout(await layoutOf({ layers, mediaType })), { name: 'ImageError' });
  });

  test('a layer or a configuration with another digest', async () => {
    const archive = tar([{ name: 'a', data: 'a' }]);
    const mediaType = 'application/vnd.oci.image.layer.v1.tar';
    const layout = await layoutOf({ layers: [archive], mediaType });
    const blob = path.join(layout, 'blobs', 'sha256', digestOf(archive).slice('sha256:'.length));
    await writeFile(blob, tar([{ name: 'b', data: 'b' }]));
    await assert.rejects(importLayout(layout), { name: 'ImageError', message: /digest/i });
    await rm(blob);
    await assert.rejects(importLayout(layout), { name: 'ImageError', message: /no such file/ });
  });

  test('more bytes or files than are allowed, before anything is unpacked', async () => {
    const bomb = tar([{ name: 'zeros', data: Buffer.alloc(4 * 2 ** 20) }]);
    const layers = Array.from({ length: 3 }, (_, at) =>
      Buffer.concat([tar([{ name: `${at}` }]).subarray(0, 512), bomb]),
    );
    const lines: string[] = [];
    const layout = await layoutOf({ layers });
    const tenMegabytes = 10 / 1024;
    const log = (line: string) => lines.push(line);
    await assert.rejects(importLayout(layout, { maxGb: tenMegabytes, log }), /more than 0\.0 GB; --max-gb allows more/);
    await assert.rejects(importLayout(layout, { maxFiles: 5, log }), /more than 5 files; --max-files allows more/);
    assert.ok(!lines.some((line) => line.startsWith('unpacking')));
    await importLayout(layout, { maxFiles: 6 });
  });

  test('a layout that skopeo should have refused, because each digest is computed again', async () => {
    const scratch = await mkdtemp(path.join(folder, 'judged-'));
    const layout = path.join(scratch, 'layout');
    const limits = { bytes: 2 ** 30, files: 100 };
    const archive = tar([{ name: 'a', data: 'a' }]);
    const other = tar([{ name: 'a', data: 'b' }]);
    const mediaType = 'application/vnd.oci.image.layer.v1.tar';
    const blob = (bytes: Buffer) => path.join(layout, 'blobs', 'sha256', digestOf(bytes).slice('sha256:'.length));
    const refused = (message: RegExp) => assert.rejects(judgeLayout(scratch, limits), { name: 'ImageError', message });

    await writeLayout(layout, { layers: [archive], mediaType });
    assert.equal((await judgeLayout(scratch, limits)).files, 1);
    await writeFile(blob(archive), other);
    await refused(/a layer has the digest sha256:/);
    await truncate(blob(archive), 512);
    await refused(/has 512 bytes instead of 2048/);
    await rm(blob(archive));
    await refused(/is missing/);

    await writeLayout(layout, { layers: [archive], mediaType, diffIds: [digestOf(other)] });
    await refused(/an unpacked layer has the digest/);
    await writeLayout(layout, { layers: [archive], mediaType, diffIds: [] });
    await refused(/does not have the layers of its manifest/);
    await writeLayout(layout, { layers: [archive], mediaType: `${mediaType}+zstd` });
    await refused(/only tar and tar\+gzip/);
    await writeLayout(layout, { layers: [archive] }, { layers: [other] });
    await refused(/does not name one image/);
  });

  test('another architecture, alone or among others, and a layout with an ambiguous image', async () => {
    const layers = [[{ name: 'a', data: 'a' }]];
    const arm = { os: 'linux', architecture: 'arm64' };
    await assert.rejects(importLayout(await layoutOf({ layers, platform: arm })), /for linux\/arm64, and this host/);
    const named = { layers, platform: arm, isPlatformNamed: true };
    const ppc = { ...named, platform: { os: 'linux', architecture: 'ppc64le' } };
    await assert.rejects(importLayout(await layoutOf(named, ppc)), /for linux\/arm64, linux\/ppc64le, and this host/);
    const two = await layoutOf({ layers, tag: 'one' }, { layers: [[{ name: 'b' }]], tag: 'two' });
    await assert.rejects(importLayout(two), /more than one image: name one by its tag \(it has one, two\)/);
    await assert.rejects(importLayout(`${two}:three`), /no image three \(it has one, two\)/);
    await importLayout(`${two}:two`);
  });

  test('invalid names, and "base"', async () => {
    for (const name of ['base', 'Upper', '../x', 'a/b', '', '.', 'a..b', 'x'.repeat(65)]) {
      await assert.rejects(async () => importLayout('/nowhere', { name }), { name: 'ImageError' }, name);
    }
  });
});

describe('an import never leaves its folder (ISO-8)', { skip: !isRoot }, () => {
  test('links that point out are links of the image, also for what is written through them', async () => {
    const outside = path.join(folder, 'outside');
    await mkdir(outside);
    const made = await importLayers(
      [
        { name: 'far', type: '2', linkName: outside },
        { name: 'up', type: '2', linkName: `../../../../../../../..${outside}` },
        { name: 'lib', type: '2', linkName: outside },
      ],
      [
        { name: 'far/one', data: '1' },
        { name: 'up/two', data: '2' },
        { name: 'far/up', type: '2', linkName: '../../..' },
        { name: 'far/up/three', data: '3' },
        { name: '/slash', data: 'of the image' },
      ],
    );
    assert.deepEqual(await readdir(outside), []);
    assert.deepEqual((await list(made, outside)).sort(), ['.', '..', 'modules', 'one', 'two', 'up'].sort());
    assert.equal(await look(made, 'cat /slash'), 'of the image');
    assert.ok(!(await isThere('/slash')));
  });

  test('anything at the path of the modules is replaced, not followed', async () => {
    const outside = path.join(folder, 'outside-modules');
    await mkdir(outside);
    await writeFile(path.join(outside, 'modules.order'), 'mine');
    const link = { name: `lib/modules/${KERNEL_VERSION}`, type: '2', linkName: outside };
    const made = await importLayers([link]);
    assert.equal(await readFile(path.join(outside, 'modules.order'), 'utf8'), 'mine');
    assert.match(await look(made, `stat /lib/modules/${KERNEL_VERSION}`), /Type: directory/);
  });

  test('a layout with blobs that are links to files of the host reveals none of these files', async () => {
    const secret = path.join(folder, 'secret');
    await writeFile(secret, tar([{ name: 'a', data: 'secret' }]));
    const mediaType = 'application/vnd.oci.image.layer.v1.tar';
    const archive = await readFile(secret);
    const layout = await layoutOf({ layers: [archive], mediaType });
    const blob = path.join(layout, 'blobs', 'sha256', digestOf(archive).slice('sha256:'.length));
    await rm(blob);
    await symlink(secret, blob);
    await assert.rejects(importLayout(layout), { name: 'ImageError', message: /no such file/ });
  });

  test('no other account can reach its setuid programs and devices while they are on the host', async () => {
    const modes: number[] = [];
    const log = async (line: string) => {
      if (!line.startsWith('making a disk')) return;
      for (const name of await readdir(path.join(cacheDir, 'import')).catch(() => [])) {
        modes.push((await stat(path.join(cacheDir, 'import', name))).mode & 0o777);
      }
    };
    const pending: Promise<void>[] = [];
    const layout = await layoutOf({ layers: [[{ name: 'su', mode: 0o4755, data: 'only here' }]] });
    await importLayout(layout, { log: (line) => pending.push(log(line)) });
    await Promise.all(pending);
    assert.deepEqual(modes, [0o700]);
    assert.deepEqual(await readdir(path.join(cacheDir, 'import')), []);
  });
});

describe('an import', { skip: !isRoot }, () => {
  test('that fails leaves the stack unchanged and no files behind', async () => {
    const good = await importLayout(await layoutOf({ layers: [[{ name: 'good', data: '1' }]] }), { name: 'kept' });
    const bad = await layoutOf({ layers: [[{ name: '../bad', data: '1' }]] });
    await assert.rejects(importLayout(bad, { name: 'kept' }));
    assert.equal((await loadImage(cacheDir, 'kept')).key, good.image.key);
    assert.deepEqual(await readdir(path.join(cacheDir, 'import')), []);
  });

  test('of known content unpacks nothing, also under another name', async () => {
    const layout = await layoutOf({ layers: [[{ name: 'same', data: 'content' }]] });
    const first = await importLayout(layout, { name: 'first' });
    const lines: string[] = [];
    const again = await importLayout(layout, { name: 'second', log: (line) => lines.push(line) });
    assert.equal(again.image.rootfs.path, first.image.rootfs.path);
    assert.ok(!lines.some((line) => /fetching|unpacking/.test(line)), lines.join('\n'));
    assert.equal((await importLayout(layout, { name: 'first' })).wasBuilt, false);
  });

  test('parallel to another import of the same name leaves one complete result', async () => {
    const layouts = await Promise.all(['one', 'two'].map((data) => layoutOf({ layers: [[{ name: 'which', data }]] })));
    const made = await Promise.all(layouts.map((layout) => importLayout(layout, { name: 'raced' })));
    const current = await loadImage(cacheDir, 'raced');
    assert.ok(made.some(({ image }) => image.key === current.key));
    assert.deepEqual(await Promise.all(made.map((one) => look(one, 'cat /which'))), ['one', 'two']);
  });

  test('that is killed leaves the stack unchanged and no process; the next import removes its files', async () => {
    const { image } = await importLayout(await layoutOf({ layers: [[{ name: 'before', data: '1' }]] }), {
      name: 'killed',
    });
    const layout = await layoutOf({ layers: [[{ name: 'after', data: randomBytes(8 * 2 ** 20) }]] });
    const env = { ...process.env, SANDBAR_CACHE: cacheDir };
    const child = spawn(process.execPath, [CLI, 'image', 'import', 'killed', `oci:${layout}`], { env });
    const ended = once(child, 'exit');
    for await (const line of createInterface({ input: child.stderr })) {
      if (line.startsWith('checking its layers')) child.kill('SIGKILL');
    }
    assert.deepEqual(await ended, [null, 'SIGKILL']);
    assert.equal((await loadImage(cacheDir, 'killed')).key, image.key);
    const [left = ''] = await readdir(path.join(cacheDir, 'import'));
    while ((await commandLines()).some((line) => line.includes(left))) await setImmediate();
    await importLayout(layout, { name: 'killed' });
    assert.deepEqual(await readdir(path.join(cacheDir, 'import')), []);
  });

  test('on a full disk reports that and leaves nothing', async () => {
    const small = path.join(folder, 'small');
    await mkdir(small);
    await execute('mount', ['-t', 'tmpfs', '-o', 'size=16m', 'tmpfs', small]);
    try {
      await writeCache(small);
      const common = { cacheDir: small, name: 'full', isInsecure: false, log: () => {} };
      const large = await layoutOf({ layers: [[{ name: 'noise', data: randomBytes(20 * 2 ** 20) }]] });
      const full = { name: 'ImageError', message: /^The disk is full/ };
      await assert.rejects(importImage({ ...common, reference: `oci:${large}` }), full);
      const fits = await layoutOf({ layers: [[{ name: 'noise', data: 'few' }]] });
      const noRoom = { name: 'ImageError', message: /needs 1\.0 GB, and .*small.* has 0\.0 GB/ };
      await assert.rejects(importImage({ ...common, reference: `oci:${fits}` }), noRoom);
      assert.deepEqual(await readdir(path.join(small, 'import')), []);
      assert.deepEqual(await readdir(path.join(small, 'images')), ['base']);
    } finally {
      await execute('umount', [small]);
    }
  });

  test('of an archive written by docker save', async () => {
    const layout = await layoutOf({ layers: [[{ name: 'saved', data: 'by docker' }]], tag: 'latest' });
    const archive = path.join(folder, 'saved.tar');
    await execute('skopeo', ['--insecure-policy', 'copy', `oci:${layout}:latest`, `docker-archive:${archive}:a/b:c`]);
    await chmod(archive, 0o600);
    const common = { cacheDir, isInsecure: false, log: () => {} };
    const made = await importImage({ ...common, name: 'saved', reference: `docker-archive:${archive}` });
    assert.equal(await look(made, 'cat /saved'), 'by docker');
    const tagged = await importImage({ ...common, name: 'saved', reference: `docker-archive:${archive}:a/b:c` });
    assert.equal(tagged.image.rootfs.path, made.image.rootfs.path);
    await truncate(archive, 1000);
    await assert.rejects(importImage({ ...common, name: 'saved', reference: `docker-archive:${archive}` }), {
      name: 'ImageError',
    });
  });
});
