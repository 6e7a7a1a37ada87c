// Files of a real microVM, through the SDK and the API: bytes are exact in both directions, a file appears whole or not at
// all, every odd name and kind of file has its defined answer, and transfers survive the kill of any process.
import assert from 'node:assert/strict';
import { createHash, type Hash } from 'node:crypto';
import { once } from 'node:events';
import { request } from 'node:http';
import { after, before, describe, it } from 'node:test';
import type { FileEvent } from '@sandbar/contract/file.ts';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { FileChangedError } from '@sandbar/sdk/errors.ts';
import { type Files, pathOf } from '@sandbar/sdk/files.ts';
import { DiskFullError, SandbarError } from '@sandbar/sdk/service-errors.ts';
import { block } from '../../packages/host-agent/tests/support/tar-blocks.ts';
import { restart } from './support/host.ts';
import { API_KEY, BASE_URL, createMachine, destroyMachine, pidOf, residentMb, sh, until } from './support/service.ts';

const MIB = 1024 * 1024;
/** Enough that a process which kept all of it would be noticed. */
const LARGE = 192 * MIB;
/** How much a process may grow by during a transfer, MiB. */
const GROWTH_MB = 32;

/** Bytes that differ by position, made as they are needed. Adds them to the hash. */
async function* bytesOf(length: number, hash: Hash): AsyncGenerator<Uint8Array> {
  const piece = Buffer.alloc(MIB);
  for (let at = 0; at < length; at += piece.length) {
    for (let index = 0; index < piece.length; index += 4) piece.writeUInt32LE((at + index) >>> 0, index);
    const part = Buffer.from(piece.subarray(0, Math.min(piece.length, length - at)));
    hash.update(part);
    yield part;
  }
}

const sha = () => createHash('sha256');
const isRefused = (status: number, code: string) => (error: unknown) =>
  error instanceof SandbarError && error.status === status && error.code === code;

describe('files', () => {
  let machine: Machine;
  let files: Files;
  before(async () => {
    machine = await createMachine({ memory_mb: 512, rootfs_size_gb: 4 });
    files = new Client({ baseUrl: BASE_URL, apiKey: API_KEY }).files(machine.id);
  });
  after(() => destroyMachine(machine.id));

  const inMachine = async (command: string): Promise<string> => {
    const { code, stdout, stderr } = await sh(machine.id, command);
    assert.equal(code, 0, `${command}: ${stderr}`);
    return stdout;
  };

  it('a large file goes up and down unchanged, and no process keeps it in memory', async () => {
    const processes = ['control-plane', 'host-agent'] as const;
    // The first transfer of a process loads code, which is no growth by the file.
    await files.write('/root/warm', Buffer.alloc(8 * MIB));
    await files.read('/root/warm');
    const before = processes.map((name) => residentMb(pidOf(name)));
    const most = [...before];
    const watching = setInterval(() => {
      for (const [index, name] of processes.entries())
        most[index] = Math.max(most[index] ?? 0, residentMb(pidOf(name)));
    }, 100);
    try {
      let up = sha();
      const open = () => {
        up = sha();
        return bytesOf(LARGE, up);
      };
      const entry = await files.write('/root/large', open, { mode: 0o640 });
      assert.deepEqual([entry.size, entry.mode, entry.type], [LARGE, '0640', 'file']);
      const down = sha();
      for await (const chunk of files.stream('/root/large')) down.update(chunk);
      const digest = up.digest('hex');
      assert.equal(down.digest('hex'), digest);
      assert.match(await inMachine('sha256sum /root/large'), new RegExp(`^${digest}`));
    } finally {
      clearInterval(watching);
      await files.remove('/root/large');
    }
    for (const [index, name] of processes.entries()) {
      const grown = (most[index] ?? 0) - (before[index] ?? 0);
      assert(grown < GROWTH_MB, `${name} grew by ${grown.toFixed(0)} MB`);
    }
  });

  it('parts of a file, conditions and headers are as HTTP says', async () => {
    await files.write('/root/parts', '0123456789');
    assert.equal(Buffer.from(await files.read('/root/parts', { start: 3, end: 5 })).toString(), '345');
    const ask = (headers: Record<string, string>, method = 'GET') =>
      fetch(`${BASE_URL}/v1/machines/${machine.id}/files/content?path=/root/parts`, {
        method,
        headers: { authorization: `Bearer ${API_KEY}`, ...headers },
      });
    const head = await ask({}, 'HEAD');
    const etag = head.headers.get('etag') ?? '';
    assert.deepEqual([head.status, head.headers.get('content-length'), await head.text()], [200, '10', '']);
    assert.equal((await ask({ 'if-none-match': etag })).status, 304);
    const last = await ask({ range: 'bytes=-3', 'if-range': etag });
    assert.deepEqual([last.status, last.headers.get('content-range'), await last.text()], [206, 'bytes 7-9/10', '789']);
    const behind = await ask({ range: 'bytes=10-' });
    assert.deepEqual([behind.status, behind.headers.get('content-range')], [416, 'bytes */10']);
    await files.write('/root/parts', 'abcdefghij');
    const changed = await ask({ range: 'bytes=-3', 'if-range': etag, 'if-none-match': etag });
    assert.deepEqual([changed.status, await changed.text()], [200, 'abcdefghij']);
  });

  it('100 files written at once are all there', async () => {
    const names = Array.from({ length: 100 }, (_, index) => `/root/many/${index}`);
    await Promise.all(names.map((name) => files.write(name, name.padEnd(1024, '.'))));
    const entries = await files.list('/root/many');
    assert.deepEqual(
      new Set(entries.map(({ path, size }) => `${path} ${size}`)),
      new Set(names.map((name) => `${name} 1024`)),
    );
    assert.equal(await files.readText('/root/many/42'), '/root/many/42'.padEnd(1024, '.'));
  });

  it('10,000 entries are listed completely and in order', async () => {
    await inMachine('mkdir /root/wide && cd /root/wide && seq -w 1 10000 | xargs touch');
    const names = (await files.list('/root/wide')).map(({ name }) => name);
    const expected = Array.from({ length: 10_000 }, (_, index) => String(index + 1).padStart(5, '0'));
    assert.deepEqual(names, expected);
    await files.remove('/root/wide', { recursive: true });
    await assert.rejects(files.stat('/root/wide'), isRefused(404, 'not_found'));
  });

  it('an upload that is cut at any byte leaves the old file, and nothing beside it', async () => {
    await files.write('/root/cut/file', 'old');
    for (const length of [0, 1, 70_000, 3 * MIB]) {
      const sent = request(`${BASE_URL}/v1/machines/${machine.id}/files/content?path=/root/cut/file`, {
        method: 'PUT',
        headers: { authorization: `Bearer ${API_KEY}`, 'content-length': String(100 * MIB) },
      });
      sent.on('error', () => undefined);
      if (length === 0) sent.flushHeaders();
      else if (!sent.write(Buffer.alloc(length, 'x'))) await once(sent, 'drain');
      await until('the upload has begun', async () => (await inMachine('ls -A /root/cut | wc -l; true')).length > 0);
      sent.destroy();
      await until('the rest of it is gone', async () => (await inMachine('ls -A /root/cut')) === 'file\n');
      assert.equal(await files.readText('/root/cut/file'), 'old');
    }
  });

  it('a full disk is a 507 that names the path, and leaves the old file', async () => {
    await inMachine('mkdir -p /mnt/small && mount -t tmpfs -o size=1m tmpfs /mnt/small');
    await files.write('/mnt/small/file', 'old');
    await assert.rejects(files.write('/mnt/small/file', Buffer.alloc(4 * MIB)), (error: unknown) => {
      assert(error instanceof DiskFullError);
      assert.match(error.detail, /\/mnt\/small\/file/);
      return error.status === 507;
    });
    assert.equal(await files.readText('/mnt/small/file'), 'old');
    assert.deepEqual((await files.list('/mnt/small')).length, 1);
    await files.write('/mnt/small/other', Buffer.alloc(MIB / 2));
  });

  it('names of any bytes are written, listed, read, moved and removed', async () => {
    const names = ['new\nline', 'ü', ' ', '%41', '#?&+=', '-rf', '"quoted" \\', '.hidden', 'n'.repeat(255)];
    const paths = [...names.map((name) => `/root/odd/${name}`), Buffer.from('/root/odd/\xff\xfe', 'latin1')];
    for (const path of paths) await files.write(path, Buffer.from(path));
    const entries = await files.list('/root/odd');
    assert.equal(entries.length, paths.length);
    for (const entry of entries) {
      const path = pathOf(entry);
      assert.deepEqual(Buffer.from(await files.read(path)), Buffer.from(path));
      await files.move(path, '/root/moved');
      await assert.rejects(files.stat(path), isRefused(404, 'not_found'));
      await files.remove('/root/moved');
    }
    await assert.rejects(files.write(`/root/${'n'.repeat(256)}`, ''), isRefused(400, 'validation_error'));
  });

  it('paths with .., links and loops mean what they mean to the kernel', async () => {
    await inMachine(
      'mkdir -p /root/links/far; cd /root/links; ln -s far near; ln -s loop loop; ln -s /etc/hostname h; ln -s none dangling',
    );
    await files.write('/root/links/near/../far/file', 'x');
    assert.equal(await files.readText('/root/links/near/file'), 'x');
    assert.equal(
      (await files.readText('/root/links/h')).trim(),
      await files.readText('/etc/hostname').then((text) => text.trim()),
    );
    const { type, target } = await files.stat('/root/links/h');
    assert.deepEqual([type, target], ['symlink', '/etc/hostname']);
    await assert.rejects(files.read('/root/links/loop'), isRefused(409, 'conflict'));
    await assert.rejects(files.read('/root/links/loop/x'), isRefused(409, 'conflict'));
    await assert.rejects(files.read('/root/links/dangling'), isRefused(404, 'not_found'));
    await files.write('/root/links/dangling', 'made');
    assert.equal(await files.readText('/root/links/none'), 'made');
    const listed = await files.list('/root/links', { depth: 8 });
    assert.equal(
      listed.some(({ path }) => path.startsWith('/root/links/near/')),
      false,
      'links are not followed',
    );
    await files.remove('/root/links/h');
    assert.match(await files.readText('/etc/hostname'), /\S/);
  });

  it('what is no ordinary file is refused and never opened', async () => {
    await inMachine('mkfifo /root/pipe');
    for (const path of ['/root/pipe', '/dev/zero', '/dev/console', '/root', '/etc/hostname/x']) {
      await assert.rejects(files.read(path), isRefused(409, 'conflict'), path);
    }
    for (const path of ['/root/pipe', '/root', '/dev/null']) {
      await assert.rejects(files.write(path, 'x'), isRefused(409, 'conflict'), path);
    }
    await assert.rejects(files.list('/etc/hostname'), isRefused(409, 'conflict'));
    await assert.rejects(files.remove('/root'), isRefused(409, 'conflict'));
    assert.equal((await files.stat('/dev/null')).type, 'other');
  });

  it('a file of /proc is read to its end', async () => {
    assert.match(await files.readText('/proc/version'), /^Linux version /);
    assert.match(await files.readText('/proc/self/status'), /^Name:/);
  });

  it('a file that grows while it is read has the length of the beginning, and one that shrinks breaks off', async () => {
    await inMachine('head -c 40000000 /dev/zero > /root/grows; cp /root/grows /root/shrinks');
    const read = async (path: string, change: string): Promise<number> => {
      let length = 0;
      for await (const chunk of files.stream(path)) {
        if (length === 0) await inMachine(change);
        length += chunk.length;
      }
      return length;
    };
    assert.equal(await read('/root/grows', 'echo more >> /root/grows'), 40_000_000);
    await assert.rejects(read('/root/shrinks', ': > /root/shrinks'), FileChangedError);
  });

  it('a write without overwrite keeps the first of two', async () => {
    const results = await Promise.allSettled(
      ['a', 'b', 'c', 'd'].map((text) => files.write('/root/first', text, { overwrite: false })),
    );
    assert.equal(results.filter(({ status }) => status === 'fulfilled').length, 1);
    await assert.rejects(files.write('/root/first', 'e', { overwrite: false }), isRefused(409, 'conflict'));
  });

  it('owner and mode are as asked for, or stay', async () => {
    await files.write('/root/owned', 'x', { mode: 0o600, user: 'nobody' });
    const { mode, user, modified_at } = await files.write('/root/owned', 'y');
    assert.deepEqual([mode, user], ['0600', 'nobody']);
    assert(Math.abs(Date.parse(modified_at) - Date.now()) < 60_000);
    await assert.rejects(files.write('/root/owned', 'z', { user: 'no such user' }), isRefused(400, 'validation_error'));
    await assert.rejects(files.write('/no/such/place', 'z', { parents: false }), isRefused(404, 'not_found'));
    assert.equal((await files.mkdir('/root/d/e/f', { mode: 0o711 })).mode, '0711');
  });

  it('a tree goes out as an archive and into another place, as it was', async () => {
    await inMachine(
      'mkdir -p /root/tree/a/b && cd /root/tree && echo x > a/b/file && ln a/b/file hard && ln -s a/b/file soft && chmod 750 a && touch -d @1000000000 a/b/file',
    );
    await files.mkdir('/root/copy');
    const { refused_count } = await files.unpack('/root/copy', () => files.archive('/root/tree'));
    assert.equal(refused_count, 0);
    const describeTree = (path: string) => inMachine(`cd ${path} && find . -exec stat -c '%n %F %a %h %s' {} + | sort`);
    const [original, copy] = [await describeTree('/root/tree'), await describeTree('/root/copy')];
    assert.equal(copy.replace(/^\. .*$/m, ''), original.replace(/^\. .*$/m, ''));
    assert.equal((await files.stat('/root/copy/a/b/file')).modified_at, '2001-09-09T01:46:40.000Z');
  });

  it('an archive with entries that would leave the directory is unpacked without them', async () => {
    await files.mkdir('/root/jail');
    const { refused, refused_count } = await files.unpack('/root/jail', hostileArchive());
    assert.deepEqual(
      refused.map(({ name }) => name),
      ['../out', '/root/jail-absolute', 'up', 'device'],
    );
    assert.equal(refused_count, 4);
    assert.equal(
      await inMachine('find /root/jail -mindepth 1 | sort; ls -d /root/out /root/jail-absolute 2>/dev/null; true'),
      // The link was left out, so the entry below it got a directory of its own.
      '/root/jail/good\n/root/jail/up\n/root/jail/up/out\n',
    );
  });

  it('a watch reports what happens, until its directory is removed', async () => {
    await files.mkdir('/root/watched/deep');
    const events: FileEvent[] = [];
    const ready = Promise.withResolvers<void>();
    const watching = (async () => {
      for await (const event of files.watch('/root/watched')) {
        events.push(event);
        if (event.type === 'ready') ready.resolve();
      }
    })();
    await ready.promise;
    await inMachine('cd /root/watched; echo x > deep/new; echo y >> deep/new; mv deep/new renamed; rm renamed');
    const has = (type: string, path: string) => events.some((event) => event.type === type && event.path === path);
    await until('all events came', () => has('removed', '/root/watched/renamed'));
    assert(has('created', '/root/watched/deep/new') && has('changed', '/root/watched/deep/new'));
    const renamed = events.find(({ type }) => type === 'renamed');
    assert.deepEqual([renamed?.from, renamed?.path], ['/root/watched/deep/new', '/root/watched/renamed']);
    await inMachine('rm -r /root/watched');
    await watching;
    assert.deepEqual(events.at(-1), { type: 'removed', path: '/root/watched' });
  });

  for (const name of ['control-plane', 'host-agent'] as const) {
    it(`a kill -9 of the ${name} in the middle of a transfer costs no byte`, async () => {
      let hash = sha();
      let kills = 0;
      const open = async function* () {
        hash = sha();
        let sent = 0;
        for await (const piece of bytesOf(32 * MIB, hash)) {
          yield piece;
          sent += piece.length;
          if (sent === 16 * MIB && kills++ === 0) await restart([name], 'SIGKILL');
        }
      };
      await files.write('/root/survivor', open);
      const digest = hash.digest('hex');
      assert.equal(kills >= 1, true);
      assert.match(
        await inMachine('sha256sum /root/survivor; ls -A /root | grep -c sandbar-; true'),
        new RegExp(`^${digest}.*\n0\n`),
      );
      const down = sha();
      let received = 0;
      for await (const chunk of files.stream('/root/survivor')) {
        if (received < 4 * MIB && received + chunk.length >= 4 * MIB) await restart([name], 'SIGKILL');
        received += chunk.length;
        down.update(chunk);
      }
      assert.deepEqual([received, down.digest('hex')], [32 * MIB, digest]);
    });
  }
});

/** A tar archive with entries that lead out of the directory, a device, and one that is good. */
async function* hostileArchive(): AsyncGenerator<Uint8Array> {
  yield block({ name: '../out', data: 'x' });
  yield block({ name: '/root/jail-absolute', data: 'x' });
  yield block({ name: 'up', type: '2', linkName: '..' });
  yield block({ name: 'up/out', data: 'x' });
  yield block({ name: 'device', type: '3' });
  yield block({ name: 'good', data: 'x' });
  yield Buffer.alloc(1024);
}
