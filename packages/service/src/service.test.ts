// Tests problems that are found before the processes start: each gives one sentence that says what to do, and nothing
// is left behind.
import assert from 'node:assert/strict';
import { EventEmitter, once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createServer as createHttpServer } from 'node:http';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, describe, it } from 'node:test';
import { homePaths } from '@sandbar/contract/home.ts';
import { baseUrlOf, parseAddress, readConfig } from './config.ts';
import { ensureCredentials, readCredentials } from './credentials.ts';
import { Problem } from './problem.ts';
import { silentProgress } from './progress.ts';
import { startService } from './service.ts';
import { builds, neededVersion } from './setup/go-toolchain.ts';
import { parsePasswd } from './setup/service-user.ts';
import { missingPackages } from './setup/system-packages.ts';
import { onStopSignals } from './stop-signals.ts';
import { writePidFile } from './supervise/pid-file.ts';
import { assertPortFree } from './supervise/ports.ts';

const folder = mkdtempSync(path.join(tmpdir(), 'sandbar-service-'));
after(() => rmSync(folder, { recursive: true }));

function configWith(env: NodeJS.ProcessEnv) {
  return readConfig({ SANDBAR_HOME: path.join(folder, 'home'), ...env }, 1000);
}

describe('configuration', () => {
  it('addresses are host and port; the URL of a wildcard is loopback', () => {
    assert.deepEqual(parseAddress('X', '[::1]:80'), { host: '::1', port: 80 });
    assert.equal(baseUrlOf({ host: '0.0.0.0', port: 7070 }), 'http://127.0.0.1:7070');
    assert.equal(baseUrlOf({ host: '::', port: 1 }), 'http://[::1]:1');
    for (const bad of ['7070', 'a:b', '127.0.0.1:0', '127.0.0.1:70700', '::1:80']) {
      assert.throws(() => parseAddress('SANDBAR_LISTEN', bad), /SANDBAR_LISTEN/);
    }
  });

  it('a data directory too deep for Unix sockets is refused', () => {
    assert.throws(() => configWith({ SANDBAR_HOME: `/tmp/${'x'.repeat(80)}` }), /at most 76 bytes/);
  });
});

describe('start', () => {
  it('a running supervisor is named and left alone', async () => {
    const config = configWith({});
    const file = homePaths(config.home).pidFile('supervisor');
    await assert.rejects(
      startService({ config: configWith({ SANDBAR_HOME: '/dev/null/x' }), user: undefined, progress: silentProgress }),
      /Cannot write to the data directory \/dev\/null\/x/,
    );
    await startService({
      config: { ...config, listen: { host: '192.0.2.1', port: 7070 } },
      user: undefined,
      progress: silentProgress,
    }).catch(() => {});
    writePidFile(file, process.ppid);
    await assert.rejects(
      startService({ config, user: undefined, progress: silentProgress }),
      new RegExp(`already running .*pid ${process.ppid}`),
    );
    assert.ok(existsSync(file));
    rmSync(file);
  });

  it('a port in use is named with its variable and its holder, and nothing is left', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const address = server.address();
    assert.ok(typeof address === 'object' && address !== null);
    const config = configWith({ SANDBAR_LISTEN: `127.0.0.1:${address.port}` });
    await assert.rejects(startService({ config, user: undefined, progress: silentProgress }), (error) => {
      assert.ok(error instanceof Problem);
      assert.match(
        error.message,
        new RegExp(`^127.0.0.1:${address.port} is in use( by process ${process.pid} .*)?: .*SANDBAR_LISTEN`),
      );
      return true;
    });
    assert.equal(existsSync(homePaths(config.home).pidFile('supervisor')), false);
    server.close();
  });

  it('an address of another machine is told', async () => {
    await assert.rejects(
      assertPortFree('SANDBAR_LISTEN', { host: '192.0.2.1', port: 7070 }),
      /no address of this machine/,
    );
  });
});

describe('credentials', () => {
  const file = path.join(folder, 'credentials.json');

  it('none is undefined; a damaged file is named with what to do', () => {
    assert.equal(readCredentials(file), undefined);
    for (const text of ['', '{', '[]', 'null', '{"base_url":"x"}', '{"base_url":"x","api_key":"","email":"e"}']) {
      writeFileSync(file, text);
      assert.throws(() => readCredentials(file), /move it away and run npm start/, text);
    }
  });

  it('another address is written into the file, the key stays, the mode is 0600', async () => {
    writeFileSync(file, JSON.stringify({ base_url: 'http://old', api_key: 'k', email: 'e', password: 'p' }));
    const credentials = await ensureCredentials(file, 'http://new', '/nobody/asked');
    assert.deepEqual(credentials, { base_url: 'http://new', api_key: 'k', email: 'e', password: 'p' });
    assert.deepEqual(readCredentials(file), credentials);
    assert.equal(statSync(file).mode & 0o777, 0o600);
  });

  it('a file without a password gets one, the key and the address stay; a password that is there is not asked for', async () => {
    const socket = path.join(folder, 'admin.sock');
    const asked: string[] = [];
    const server = createHttpServer((request, response) => {
      asked.push(request.url ?? '');
      response.end(JSON.stringify({ account_id: 'a', email: 'owner@localhost', api_key: null, password: 'made' }));
    }).listen(socket);
    await once(server, 'listening');
    try {
      writeFileSync(file, JSON.stringify({ base_url: 'http://x', api_key: 'k', email: 'e' }));
      const made = { base_url: 'http://x', api_key: 'k', email: 'e', password: 'made' };
      assert.deepEqual(await ensureCredentials(file, 'http://x', socket), made);
      assert.deepEqual(readCredentials(file), made);
      await ensureCredentials(file, 'http://x', socket);
      assert.deepEqual(asked, ['/admin/bootstrap']);
    } finally {
      server.close();
    }
  });
});

describe('set-up', () => {
  it('packages are judged by their programs', () => {
    assert.deepEqual(
      missingPackages(true, () => true),
      [],
    );
    const isThere = (shownBy: object) => !('program' in shownBy && shownBy.program === 'nft');
    assert.deepEqual(missingPackages(true, isThere), ['nftables']);
    assert.deepEqual(missingPackages(false, isThere), []);
  });

  it('which Go will do', () => {
    const needed = neededVersion('module x\n\ngo 1.24.0\n');
    assert.deepEqual(needed, [1, 24]);
    assert.deepEqual(
      [
        [1, 26],
        [1, 24],
        [1, 21],
        [1, 19],
      ].map((version) => builds(version, needed)),
      [true, true, true, false],
    );
  });

  it('the ids of a user', () => {
    assert.deepEqual(parsePasswd('root:x:0:0::/:/bin/sh\nsandbar:x:998:997::/:\n', 'sandbar'), { uid: 998, gid: 997 });
    assert.equal(parsePasswd('sandbarista:x:1:1::/:\n', 'sandbar'), undefined);
  });
});

describe('Ctrl-C', () => {
  it('signals within half a second are one request to stop; a later one asks to hurry', async () => {
    let time = 0;
    const source = new EventEmitter();
    const { stop, hurry, wanted } = onStopSignals(source, () => time);
    source.emit('SIGINT');
    source.emit('SIGINT');
    await wanted;
    assert.deepEqual([stop.aborted, hurry.aborted], [true, false]);
    time = 600;
    source.emit('SIGTERM');
    assert.equal(hurry.aborted, true);
  });
});
