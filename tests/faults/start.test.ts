// Starts the service under conditions in which it must fail. It must say in one sentence why and what to do, and must
// not leave half-made files.
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import path from 'node:path';
import { describe, it } from 'node:test';
import { fill } from './support/disk.ts';
import { AS_NOBODY, homeOf, IS_ROOT, mountDisk, program, start } from './support/service-process.ts';

describe('a start that fails', () => {
  it('with a port in use names the address and the variable to set', async () => {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    const { port } = server.address() as { port: number };
    for (const variable of ['SANDBAR_LISTEN', 'SANDBAR_METRICS_LISTEN']) {
      const { code, sentence } = await start('port', { [variable]: `127.0.0.1:${port}` }).ended;
      assert.equal(code, 1);
      assert.match(sentence, new RegExp(`^127.0.0.1:${port} is in use.*: end what listens there or set ${variable}`));
    }
    server.close();
    assert.deepEqual(
      readdirSync(path.join(homeOf('port'), 'run')).filter((name) => name.endsWith('.pid')),
      [],
    );
  });

  it('with a damaged credentials.json says so before it creates anything, and does not touch the file', async () => {
    const home = homeOf('credentials');
    mkdirSync(home);
    writeFileSync(path.join(home, 'credentials.json'), '{"base_url":');
    const { code, sentence } = await start('credentials').ended;
    assert.equal(code, 1);
    assert.match(sentence, /credentials\.json is damaged .*: move it away and run npm start again/);
    assert.deepEqual(readdirSync(home), ['credentials.json']);
  });

  for (const [what, script, says] of [
    ['that fails', 'echo no such library >&2; exit 1', /QEMU does not work: .*no such library.*SANDBAR_QEMU/],
    ['that is something else', 'echo hello', /is not QEMU: it says "hello".*SANDBAR_QEMU/],
  ] as const) {
    it(`with a QEMU ${what} says so in one sentence`, async () => {
      const { code, sentence, output } = await start('qemu', { SANDBAR_QEMU: program('bad-qemu', script) }).ended;
      assert.equal(code, 1);
      assert.match(sentence, says, output);
      assert.equal(output.trim().split('\n').at(-1), sentence, 'nothing follows the sentence');
    });
  }

  it('with a missing QEMU says so in one sentence', async () => {
    const { code, sentence } = await start('qemu', { SANDBAR_QEMU: '/nowhere/qemu' }).ended;
    assert.equal(code, 1);
    assert.match(sentence, /\/nowhere\/qemu was not found; install it .*SANDBAR_QEMU/);
  });

  it('with a data directory that is a file, or on a read-only disk, says so in one sentence', async () => {
    writeFileSync(homeOf('file'), '');
    const file = await start('file').ended;
    assert.equal(file.code, 1);
    assert.match(file.sentence, /Cannot write to the data directory .*\/file .*SANDBAR_HOME/);
    if (!IS_ROOT) return;
    mountDisk('readonly', 'ro,size=1m');
    const readOnly = await start('readonly').ended;
    assert.equal(readOnly.code, 1);
    assert.match(readOnly.sentence, /Cannot write to the data directory .*EROFS.*SANDBAR_HOME/);
  });

  it('with a disk that is full, or fills during the first start, says so and leaves no half-made database', {
    skip: !IS_ROOT,
  }, async () => {
    const full = mountDisk('full', 'size=1m');
    fill(full, 0);
    const atOnce = await start('full').ended;
    assert.equal(atOnce.code, 1);
    assert.match(atOnce.sentence, /disk .* is full.*: free some space/i, atOnce.output);

    const small = mountDisk('small', 'size=20m');
    const later = await start('small').ended;
    assert.equal(later.code, 1);
    assert.match(later.sentence, /disk .* is full.*: free some space/i, later.output);
    assert.deepEqual(
      readdirSync(small).filter((name) => name.startsWith('postgres')),
      [],
      'no half-made database',
    );
  });

  it('without root and with the data directory of another account says so in one sentence', {
    skip: !IS_ROOT,
  }, async () => {
    mkdirSync(homeOf('other'), { mode: 0o755 });
    const { code, sentence } = await start('other', {}, AS_NOBODY).ended;
    assert.equal(code, 1);
    assert.match(sentence, /Cannot write to the data directory .*\/other .*SANDBAR_HOME/);
  });
});
