// Runs an image registry on this computer for tests: Debian's docker-registry, without a certificate.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { promisify } from 'node:util';
import { freePort } from '../../../control-plane/tests/support/free-ports.ts';

const execute = promisify(execFile);

export type Registry = {
  /** The host and port of the registry. */
  address: string;
  /**
   * Pushes an image from an OCI layout. The image has the same `tag` in the layout and in the registry. With `all`,
   * pushes the images of all platforms.
   */
  push(layout: string, tag: string, name: string, options?: { all?: boolean }): Promise<void>;
  stop(): Promise<void>;
};

/** Starts a registry that stores its data in `folder`. */
export async function startRegistry(folder: string): Promise<Registry> {
  await mkdir(folder, { recursive: true });
  const address = `127.0.0.1:${await freePort()}`;
  const config = path.join(folder, 'config.yml');
  const storage = { filesystem: { rootdirectory: path.join(folder, 'storage') } };
  await writeFile(config, JSON.stringify({ version: 0.1, log: { level: 'error' }, storage, http: { addr: address } }));
  const child = spawn('docker-registry', ['serve', config], { stdio: ['ignore', 'ignore', 'ignore'] });
  await answers(`http://${address}/v2/`, child);
  return {
    address,
    push: async (layout, tag, name, { all = false } = {}) => {
      const args = ['--insecure-policy', 'copy', '--quiet', '--dest-tls-verify=false', ...(all ? ['--all'] : [])];
      await execute('skopeo', [...args, `oci:${layout}:${tag}`, `docker://${address}/${name}:${tag}`]);
    },
    stop: async () => {
      const ended = once(child, 'exit');
      if (child.exitCode === null && child.kill()) await ended;
    },
  };
}

async function answers(url: string, child: ChildProcess): Promise<void> {
  let failure: Error | undefined;
  child.on('error', (error) => (failure = error));
  for (;;) {
    if (failure) throw failure;
    if (child.exitCode !== null) throw new Error(`docker-registry ended with ${child.exitCode}`);
    const response = await fetch(url).catch(() => undefined);
    await response?.body?.cancel();
    if (response?.ok) return;
    await delay(20);
  }
}
