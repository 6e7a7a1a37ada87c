// Pebble, the ACME server that Let's Encrypt publishes for tests, with a name server that leads all names to this
// computer.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { defaultCache } from '@sandbar/contract/home.ts';
import { goEnvironment } from '../../../host-agent/src/images/agent.ts';
import { cacheKey, ensureArtifact } from '../../../host-agent/src/images/cache.ts';
import type { Pair } from '../../src/tls/pair.ts';

const MODULE = 'github.com/letsencrypt/pebble/v2';
const VERSION = 'v2.10.1';
const PROGRAMS = ['pebble', 'pebble-challtestsrv'] as const;

export type PebbleOptions = {
  /** For its configuration. */
  folder: string;
  /** The certificate of its own API. */
  pair: Pair;
  ports: { api: number; management: number; dns: number /** Where it looks for http-01 challenges. */; http: number };
};

/** Builds the programs unless the cache has them, and starts them. Returns the processes, which the caller ends. */
export async function startPebble({ folder, pair, ports }: PebbleOptions): Promise<ChildProcess[]> {
  const programs = await buildPebble();
  const file = (name: string, text: string): string => {
    writeFileSync(path.join(folder, name), text, { mode: 0o600 });
    return path.join(folder, name);
  };
  const config = {
    pebble: {
      listenAddress: `127.0.0.1:${ports.api}`,
      managementListenAddress: `127.0.0.1:${ports.management}`,
      certificate: file('pebble.pem', pair.cert),
      privateKey: file('pebble.key', pair.key),
      httpPort: ports.http,
      tlsPort: 1,
    },
  };
  const names = spawn(
    `${programs}/pebble-challtestsrv`,
    ['-dnsserver', `127.0.0.1:${ports.dns}`, '-http01', '', '-https01', '', '-tlsalpn01', '', '-doh', ''].concat([
      '-management',
      '127.0.0.1:0',
      '-defaultIPv4',
      '127.0.0.1',
      '-defaultIPv6',
      '',
    ]),
    { stdio: 'ignore' },
  );
  const args = ['-config', file('pebble.json', JSON.stringify(config)), '-dnsserver', `127.0.0.1:${ports.dns}`];
  const env = { ...process.env, PEBBLE_VA_NOSLEEP: '1' };
  const pebble = spawn(`${programs}/pebble`, args, { env, stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(pebble, 'exit').then(() => Promise.reject(new Error('pebble has ended')));
  ended.catch(() => undefined);
  const listening = new Promise<void>((resolve) => {
    createInterface({ input: pebble.stdout }).on('line', (line) => {
      if (line.includes('ACME directory available')) resolve();
    });
  });
  await Promise.race([listening, ended]);
  return [pebble, names];
}

/** `npm test` names its Go toolchain in SANDBAR_TEST_GO. Without that, `go` must be on the PATH or in /usr/local/go. */
async function buildPebble(): Promise<string> {
  const cacheDir = path.resolve(defaultCache(process.env, process.getuid?.() === 0));
  const { folder } = await ensureArtifact(
    path.join(cacheDir, 'pebble'),
    cacheKey(`${MODULE}@${VERSION}`),
    async (temporary) => {
      const env = {
        ...process.env,
        ...goEnvironment(cacheDir),
        PATH: `${process.env.PATH}:/usr/local/go/bin`,
        GOBIN: temporary,
      };
      const packages = PROGRAMS.map((name) => `${MODULE}/cmd/${name}@${VERSION}`);
      await promisify(execFile)(process.env.SANDBAR_TEST_GO ?? 'go', ['install', ...packages], { env });
    },
    [...PROGRAMS],
  );
  return folder;
}
