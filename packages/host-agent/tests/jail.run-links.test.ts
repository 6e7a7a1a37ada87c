// Tests how files are handed to a running VM through its run directory, which a compromised QEMU controls.
import assert from 'node:assert/strict';
import { linkSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, beforeEach, describe, it } from 'node:test';
import { leftRunLinks, linkIntoRunDirectory, removeRunLinks, takeFileBack } from '../src/jail/run-links.ts';
import { type Jailed, JailFixture } from './support/jailed.ts';

/**
 * A program for the jail: whenever a file named `ask` appears, it tries to open `second` for writing and prints the
 * result.
 */
const TRIES = `
  print "ready\\n";
  while (1) {
    if (-e "ask") {
      unlink "ask";
      for (glob("open-*"), "second") { print "$_: ", (open(F, "+<", $_) ? scalar <F> : "refused: $!"), "\\n" }
      link((glob("open-*"))[0], "second") if glob("open-*");
      print "answered\\n";
    }
    select(undef, undef, undef, 0.005);
  }`;

describe('a file for a running VM', () => {
  let jail: JailFixture;
  let disk: string;
  before(async () => {
    jail = await JailFixture.open();
    mkdirSync(join(jail.home, 'volumes/one'), { recursive: true, mode: 0o700 });
    disk = join(jail.home, 'volumes/one/data.raw');
  });
  beforeEach(() => {
    rmSync(disk, { force: true });
    writeFileSync(disk, 'data', { mode: 0o600 });
  });
  after(() => jail.close());

  const ownerOf = ({ uid }: Jailed) => ({ uid, gid: uid });
  async function running(): Promise<Jailed> {
    const vm = await jail.perl(TRIES);
    await vm.printed(/ready/);
    return vm;
  }
  /** Makes the jailed program try again, and returns what it prints. */
  async function ask(vm: Jailed): Promise<string> {
    const already = vm.output().length;
    writeFileSync(join(vm.runDir, 'ask'), '');
    await vm.printed(new RegExp(`^[^]{${already}}[^]*answered`));
    return vm.output().slice(already);
  }
  async function end(vm: Jailed): Promise<void> {
    await jail.jail.release(vm.vmId);
    await vm.ended;
  }

  it('is opened through a temporary name, and only the VM can open it', async () => {
    const vm = await running();
    const link = linkIntoRunDirectory(vm.runDir, disk, ownerOf(vm));
    assert.match(await ask(vm), new RegExp(`${link.name}: data`));
    assert.equal(statSync(disk).uid, vm.uid);
    assert.equal(statSync(disk).mode & 0o777, 0o600);
    link.remove();
    link.remove();
    assert.deepEqual(leftRunLinks(vm.runDir), []);
    assert.equal(readFileSync(disk, 'utf8'), 'data');
    await end(vm);
  });

  it('a second name that a hostile QEMU kept opens nothing once the file was taken back (ISO-5)', async () => {
    const vm = await running();
    const link = linkIntoRunDirectory(vm.runDir, disk, ownerOf(vm));
    await ask(vm);
    link.remove();
    assert.match(await ask(vm), /second: data/, 'it has a second name, and opens the file while it is its own');
    takeFileBack(disk);
    assert.match(await ask(vm), /second: refused: Permission denied/);
    const other = await running();
    linkIntoRunDirectory(other.runDir, disk, ownerOf(other)).remove();
    assert.match(await ask(vm), /second: refused: Permission denied/, 'nor when another VM has it');
    await end(vm);
    await end(other);
  });

  it('what a hostile QEMU puts in the place of the link is not followed, and nothing else is given away (ISO-5)', async () => {
    const vm = await running();
    const secret = join(jail.home, 'secret');
    writeFileSync(secret, 'root only', { mode: 0o600 });
    const link = linkIntoRunDirectory(vm.runDir, disk, ownerOf(vm));
    rmSync(join(vm.runDir, link.name));
    symlinkSync(secret, join(vm.runDir, link.name));
    link.remove();
    assert.equal(readFileSync(secret, 'utf8'), 'root only');
    assert.equal(statSync(secret).uid, 0);

    const again = linkIntoRunDirectory(vm.runDir, disk, ownerOf(vm));
    rmSync(join(vm.runDir, again.name));
    mkdirSync(join(vm.runDir, again.name));
    again.remove();
    removeRunLinks(vm.runDir);
    assert.deepEqual(leftRunLinks(vm.runDir), [again.name], 'a folder there can only be its own');
    await end(vm);
  });

  it('a symlink in the place of the run directory or of the file is refused (ISO-5)', async () => {
    const vm = await running();
    const elsewhere = join(jail.home, 'elsewhere');
    mkdirSync(elsewhere, { recursive: true });
    symlinkSync(elsewhere, join(jail.home, 'planted'));
    assert.throws(() => linkIntoRunDirectory(join(jail.home, 'planted'), disk, ownerOf(vm)), /in the way/);
    assert.deepEqual(readdirSync(elsewhere), []);

    const secret = join(jail.home, 'secret of root');
    writeFileSync(secret, 'root only', { mode: 0o600 });
    rmSync(disk);
    symlinkSync(secret, disk);
    assert.throws(() => linkIntoRunDirectory(vm.runDir, disk, ownerOf(vm)), /ELOOP/);
    assert.equal(statSync(secret).uid, 0);
    assert.deepEqual(leftRunLinks(vm.runDir), []);
    await end(vm);
  });

  it('links that a crashed agent left are found and removed, and the file stays', async () => {
    const vm = await running();
    const { name } = linkIntoRunDirectory(vm.runDir, disk, ownerOf(vm));
    linkSync(disk, join(vm.runDir, 'not one of ours'));
    assert.deepEqual(leftRunLinks(vm.runDir), [name]);
    removeRunLinks(vm.runDir);
    assert.deepEqual(leftRunLinks(vm.runDir), []);
    assert.equal(readFileSync(disk, 'utf8'), 'data');
    assert.deepEqual(leftRunLinks(join(jail.home, 'no such directory')), []);
    await end(vm);
  });
});
