// Tests the build of the dashboard at the start of the service, with a small program in the place of Vite.
import assert from 'node:assert/strict';
import {
  chmodSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, beforeEach, describe, it } from 'node:test';
import { writePidFile } from '../supervise/pid-file.ts';
import { ensureDashboard } from './dashboard.ts';
import { removeOldBuilds } from './dashboard-builds.ts';

const root = mkdtempSync(path.join(tmpdir(), 'sandbar-dashboard-'));
after(() => rmSync(root, { recursive: true }));
chmodSync(root, 0o755);

/** Runs a step of a test as `nobody`. The caller must be root. */
async function asOtherUser<T>(step: () => Promise<T>): Promise<T> {
  process.seteuid?.(65534);
  try {
    return await step();
  } finally {
    process.seteuid?.(0);
  }
}

/**
 * A fake Vite. It writes a page and a script that only their owner may read, and counts its runs in a file beside the
 * checkout.
 */
const VITE = `
const { appendFileSync, mkdirSync, writeFileSync } = require('node:fs');
const out = process.argv[process.argv.indexOf('--outDir') + 1];
process.umask(0o077);
appendFileSync('../../../builds.log', 'built\\n');
mkdirSync(out + '/assets', { recursive: true });
writeFileSync(out + '/index.html', 'page');
writeFileSync(out + '/assets/a.js', 'script');
`;
const hoursAgo = (hours: number) => new Date(Date.now() - hours * 3_600_000);

describe('the build of the dashboard', () => {
  let folder: string;
  let messages: string[];
  const write = (name: string, content: string) => {
    const file = path.join(folder, 'checkout', name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, content);
  };
  const start = () =>
    ensureDashboard(path.join(folder, 'checkout'), path.join(folder, 'cache'), (line) => void messages.push(line));
  const countBuilds = () => readFileSync(path.join(folder, 'builds.log'), 'utf8').trim().split('\n').length;
  const inCache = (name: string) => path.join(folder, 'cache', 'dashboard', name);
  /** The names of the finished and unfinished builds in the cache. */
  const listBuilds = () => readdirSync(inCache('')).filter((name) => !name.endsWith('.pid'));
  /** Makes a build that was last used this many hours ago. Returns its name. */
  const addBuild = (digit: string, hours: number) => {
    const name = digit.repeat(32);
    mkdirSync(inCache(name), { recursive: true });
    writeFileSync(path.join(inCache(name), 'index.html'), 'page');
    utimesSync(inCache(name), hoursAgo(hours), hoursAgo(hours));
    return name;
  };

  beforeEach(() => {
    folder = mkdtempSync(path.join(root, 'case-'));
    chmodSync(folder, 0o755);
    messages = [];
    write('packages/dashboard/src/main.tsx', 'one');
    write('packages/contract/src/index.ts', '');
    write('package-lock.json', '{}');
    write('node_modules/vite/bin/vite.js', VITE);
  });

  it('happens once for the same content, and again after a change', async () => {
    const first = await start();
    assert.equal(await start(), first);
    assert.equal(countBuilds(), 1);
    write('packages/dashboard/src/main.tsx', 'two');
    const second = await start();
    assert.notEqual(second, first);
    assert.equal(countBuilds(), 2);
    assert.equal(readFileSync(`${second}/index.html`, 'utf8'), 'page');
    assert.deepEqual(messages, []);
  });

  it('can be read by the other user who serves it, whatever the umask is', async () => {
    const target = String(await start());
    const mode = (name: string) => (statSync(path.join(target, name)).mode & 0o777).toString(8);
    assert.deepEqual(['.', 'assets', 'index.html', 'assets/a.js'].map(mode), ['755', '755', '644', '644']);
  });

  it('gives two starts at the same time the same folder, and leaves no other', async () => {
    const [one, other] = await Promise.all([start(), start()]);
    assert.ok(one);
    assert.equal(one, other);
    assert.deepEqual(listBuilds(), [path.basename(one)]);
    assert.deepEqual(messages, []);
  });

  it('says why it failed, leaves no folder, and succeeds at a later start', async () => {
    write('node_modules/vite/bin/vite.js', 'console.error("Unexpected token in main.tsx"); process.exit(1);');
    assert.equal(await start(), undefined);
    assert.match(messages.join(), /^no dashboard: its build failed \(1\): Unexpected token in main\.tsx$/);
    assert.deepEqual(listBuilds(), []);
    write('node_modules/vite/bin/vite.js', VITE);
    assert.ok(await start());
  });

  it('says what is missing when the build tool is not installed', async () => {
    rmSync(path.join(folder, 'checkout/node_modules'), { recursive: true });
    assert.equal(await start(), undefined);
    assert.match(
      messages.join(),
      /^no dashboard: its build tool \(vite\) is not installed; npm install --include=dev in the checkout installs it$/,
    );
  });

  it('does not stop the service when the sources or the cache cannot be used', async () => {
    rmSync(path.join(folder, 'checkout/package-lock.json'));
    assert.equal(await start(), undefined);
    write('package-lock.json', '{}');
    writeFileSync(path.join(folder, 'cache/dashboard.txt'), '');
    rmSync(path.join(folder, 'cache/dashboard'), { recursive: true });
    writeFileSync(path.join(folder, 'cache/dashboard'), 'a file, not a folder');
    assert.equal(await start(), undefined);
    assert.deepEqual(
      messages.map((line) => /^no dashboard: (ENOENT|EEXIST)/.exec(line)?.[1]),
      ['ENOENT', 'EEXIST'],
    );
  });

  it('keeps the builds that were used last and those in use, and removes the others', async () => {
    const kept = ['1', '2', '3', '4'].map((digit, at) => addBuild(digit, at + 1));
    const inUse = addBuild('5', 50);
    writePidFile(`${inCache(inUse)}.${process.ppid}.pid`, process.ppid);
    const removed = addBuild('6', 60);
    // Its process ended, so this pid file names no process.
    writeFileSync(`${inCache(removed)}.99.pid`, '99\n1\n');
    const target = path.basename(String(await start()));
    assert.deepEqual(listBuilds().sort(), [target, ...kept, inUse].sort());
    assert.equal(existsSync(`${inCache(removed)}.99.pid`), false);
  });

  it('replaces a build that lacks its page, such as one whose removal was interrupted', async () => {
    const target = String(await start());
    rmSync(path.join(target, 'index.html'));
    assert.equal(await start(), target);
    assert.equal(readFileSync(path.join(target, 'index.html'), 'utf8'), 'page');
    assert.deepEqual(listBuilds(), [path.basename(target)]);
  });

  it('gives an old build another name before its files are removed, because that can be interrupted', async (t) => {
    if (process.getuid?.() !== 0) return t.skip('needs root');
    for (const digit of ['1', '2', '3', '4', '5']) addBuild(digit, 1);
    const old = addBuild('6', 60);
    // The other user may change the names in the cache, and may not remove the files of a build.
    chmodSync(inCache(''), 0o777);
    await assert.rejects(
      asOtherUser(() => removeOldBuilds(inCache(''))),
      /EACCES/,
    );
    const left = listBuilds().filter((name) => name.startsWith(old));
    assert.deepEqual(
      left.map((name) => /^6{32}\.\w{6}$/.test(name)),
      [true],
    );
  });

  it('is used by a user who may not change the cache, and says what was not done', async (t) => {
    if (process.getuid?.() !== 0) return t.skip('needs root');
    const target = await start();
    assert.equal(await asOtherUser(start), target);
    assert.deepEqual(
      messages.map((line) => line.replace(/, .*/, '')),
      [
        'its build is not protected from other starts: EACCES: permission denied',
        'its old builds stay in the cache: EPERM: operation not permitted',
      ],
    );
  });

  it('is used when old builds cannot be removed', async () => {
    const old = addBuild('1', 1);
    // A folder cannot be read as a pid file.
    mkdirSync(`${inCache(old)}.99.pid`);
    assert.ok(await start());
    assert.match(messages.join(), /^its old builds stay in the cache: EISDIR/);
  });

  it('removes what a killed build left an hour ago, and leaves a build that another start makes now', async () => {
    const name = addBuild('7', 1);
    const abandoned = inCache(`${name}.aaaaaa`);
    const underWay = inCache(`${name}.bbbbbb`);
    for (const unfinished of [abandoned, underWay]) mkdirSync(unfinished);
    utimesSync(abandoned, hoursAgo(2), hoursAgo(2));
    await start();
    assert.equal(existsSync(abandoned), false);
    assert.equal(existsSync(underWay), true);
  });
});
