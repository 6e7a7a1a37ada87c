// Tests what the jail of the guest gateway allows. Needs root.
import assert from 'node:assert/strict';
import {
  existsSync,
  lstatSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Gateway } from '../src/gateway/gateway.ts';
import { placeSocket } from '../src/gateway/guest-socket.ts';
import { reservedUids } from '../src/jail/uid-pool.ts';
import { gatewayPid, startGateway } from './support/gateway.ts';
import { writableMounts } from './support/mounts.ts';

describe('jail of the gateway', { skip: process.getuid?.() !== 0 }, () => {
  const home = mkdtempSync(join(tmpdir(), 'sandbar-gateway-'));
  let gateway: Gateway;
  let pid = 0;
  before(async () => {
    gateway = await startGateway(home);
    pid = gatewayPid(gateway);
  });
  after(async () => {
    await gateway.close();
    assert.equal(existsSync(join(home, 'run/gateway')), false);
    rmSync(home, { recursive: true, force: true });
  });
  const file = (name: string) => readFileSync(`/proc/${pid}/${name}`, 'utf8');

  it('no thread has the uid of root or of a VM, a capability, a group, or a way to get one', () => {
    const { gateway: uid } = reservedUids(home);
    for (const thread of readdirSync(`/proc/${pid}/task`)) {
      const status = file(`task/${thread}/status`);
      const fields = Object.fromEntries(
        [...status.matchAll(/^(\w+):[ \t]*(.*)$/gm)].map(([, name, value]) => [name, value]),
      );
      for (const name of ['Uid', 'Gid']) assert.equal(fields[name], Array(4).fill(uid).join('\t'));
      for (const name of ['CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'])
        assert.equal(Number(`0x${fields[name]}`), 0);
      assert.deepEqual([fields.Groups?.trim(), fields.NoNewPrivs], ['', '1']);
    }
  });

  it('it has no network: only a loopback of its own', () => {
    assert.notEqual(readlinkSync(`/proc/${pid}/ns/net`), readlinkSync('/proc/self/ns/net'));
    const devices = [...file('net/dev').matchAll(/^\s*(\S+):/gm)].map(([, name]) => name);
    assert.deepEqual(devices, ['lo']);
  });

  it('it sees no file of the data directory but its own folder, no program but Node, and can write nothing', () => {
    const root = `/proc/${pid}/root`;
    assert.deepEqual([readdirSync(`${root}${home}`), readdirSync(`${root}${home}/run`)], [['run'], ['gateway']]);
    for (const path of ['/etc/passwd', '/bin/sh', '/usr/bin/env', '/home', '/root', '/dev'])
      assert.equal(existsSync(`${root}${path}`), path === '/usr/bin/env', path);
    assert.deepEqual(writableMounts(file('mountinfo')), ['/proc']);
  });

  it('its memory is bounded, and it has no environment', () => {
    assert.equal(file('environ'), '');
    const group = /^\d+:memory:(.*)$/m.exec(file('cgroup'))?.[1];
    const limit =
      group === undefined
        ? readFileSync(`/sys/fs/cgroup${/^0::(.*)$/m.exec(file('cgroup'))?.[1]}/memory.max`, 'utf8')
        : readFileSync(`/sys/fs/cgroup/memory${group}/memory.limit_in_bytes`, 'utf8');
    assert.equal(Number(limit), 320 * 1024 * 1024);
  });
});

describe('socket that is placed for the gateway', () => {
  const dir = mkdtempSync(join(tmpdir(), 'sandbar-place-'));
  const place = join(dir, 'placed');
  const isRoot = process.getuid?.() === 0;
  after(() => rmSync(dir, { recursive: true, force: true }));

  it('a symlink or a file in the place of the socket is refused, and its target stays as it is (RES-8)', async () => {
    const file = join(dir, 'file');
    const other = join(dir, 'other');
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(other, resolve));
    writeFileSync(file, 'secret');
    symlinkSync(file, join(dir, 'link'));
    symlinkSync(other, join(dir, 'link-to-socket'));
    const owner = isRoot ? { uid: 12_345, gid: 12_345 } : undefined;
    for (const name of ['file', 'link', 'link-to-socket']) {
      assert.throws(() => placeSocket(dir, name, place, owner), /is not a socket/);
      assert.equal(existsSync(place), false);
    }
    for (const target of [file, other]) assert.equal(lstatSync(target).uid, process.getuid?.());
    server.close();
  });

  it('a socket gets a second name, and the owner may connect', { skip: !isRoot }, async () => {
    const server = createServer();
    await new Promise<void>((resolve) => server.listen(join(dir, 'socket'), resolve));
    placeSocket(dir, 'socket', place, { uid: 12_345, gid: 12_346 });
    const { uid, gid, ino } = lstatSync(place);
    assert.deepEqual([uid, gid, ino], [12_345, 12_346, lstatSync(join(dir, 'socket')).ino]);
    server.close();
  });
});
