// Hosts for the tests of copies from host to host: agents on real folders that have the same image, and streams that
// are damaged or cut off on the way.
import { createHash } from 'node:crypto';
import { mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { FakeHost } from './fake-host.ts';

const SHA = '0'.repeat(64);

/** Starts a host whose cache has the image `base`. `rootfs`: another content of the image, with the same digest. */
export async function startHost(used: FakeHost[], rootfs?: Buffer): Promise<FakeHost> {
  const host = new FakeHost();
  used.push(host);
  await host.start();
  const build = join(host.dir, 'cache/images/base/build');
  mkdirSync(build, { recursive: true });
  const imagePath = join(host.dir, 'rootfs.img');
  if (rootfs) writeFileSync(imagePath, rootfs);
  for (const name of ['kernel', 'initramfs']) writeFileSync(join(build, name), name);
  const manifest = {
    ...{ stack: 'base', description: 'For tests.', digest: `sha256:${SHA}`, architecture: 'x86_64', min_rootfs_gb: 1 },
    ...{ default: true, created_at: '2026-01-01T00:00:00.000Z' },
    kernel: { path: 'kernel', version: '6.1', sha256: SHA },
    initramfs: { path: 'initramfs', sha256: SHA },
    rootfs: { path: imagePath, bytes: readFileSync(imagePath).length, format: 'raw' },
  };
  writeFileSync(join(build, 'manifest.json'), JSON.stringify(manifest));
  symlinkSync('build', join(host.dir, 'cache/images/base/current'));
  return host;
}

export const sha256Of = (path: string): string => createHash('sha256').update(readFileSync(path)).digest('hex');

export const streamOf = (source: AsyncIterable<Buffer>): Readable => Readable.from(source, { objectMode: false });

/** Yields what `change` returns for each piece of `source`. Ends the stream when `change` returns undefined. */
export async function* changed(
  source: AsyncIterable<Buffer>,
  change: (piece: Buffer, index: number) => Buffer | undefined,
): AsyncGenerator<Buffer> {
  let index = 0;
  for await (const piece of source) {
    const passed = change(piece, index++);
    if (passed === undefined) return;
    yield passed;
  }
}
