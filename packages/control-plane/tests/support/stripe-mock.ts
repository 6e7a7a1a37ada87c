// stripe-mock, Stripe's own server for tests. It checks each request against the description of Stripe's API and
// answers with samples, but stores nothing.
import { type ChildProcess, execFile, spawn } from 'node:child_process';
import { once } from 'node:events';
import path from 'node:path';
import { createInterface } from 'node:readline';
import { promisify } from 'node:util';
import { defaultCache } from '@sandbar/contract/home.ts';
import { goEnvironment } from '../../../host-agent/src/images/agent.ts';
import { cacheKey, ensureArtifact } from '../../../host-agent/src/images/cache.ts';

/** This version describes the same version of Stripe's API that the npm package `stripe` uses. Change both together. */
const PACKAGE = 'github.com/stripe/stripe-mock@v0.203.0';

/**
 * Builds stripe-mock unless the cache has it, and starts it on a Unix socket. It refuses requests of another version of
 * the API than its own.
 */
export async function startStripeMock(socketPath: string): Promise<ChildProcess> {
  const args = ['-strict-version-check', '-http', '-unix', socketPath];
  const child = spawn(await buildStripeMock(), args, { stdio: ['ignore', 'pipe', 'inherit'] });
  const ended = once(child, 'exit').then(() => Promise.reject(new Error('stripe-mock has ended')));
  ended.catch(() => undefined);
  const listening = new Promise<void>((resolve) => {
    createInterface({ input: child.stdout }).on('line', (line) => {
      if (line.startsWith('Listening')) resolve();
    });
  });
  await Promise.race([listening, ended]);
  return child;
}

/** `npm test` names its Go toolchain in SANDBAR_TEST_GO. Without that, `go` must be on the PATH or in /usr/local/go. */
async function buildStripeMock(): Promise<string> {
  const cacheDir = path.resolve(defaultCache(process.env, process.getuid?.() === 0));
  const { folder } = await ensureArtifact(
    path.join(cacheDir, 'stripe-mock'),
    cacheKey(PACKAGE),
    async (temporary) => {
      const env = {
        ...process.env,
        ...goEnvironment(cacheDir),
        PATH: `${process.env.PATH}:/usr/local/go/bin`,
        GOBIN: temporary,
      };
      await promisify(execFile)(process.env.SANDBAR_TEST_GO ?? 'go', ['install', PACKAGE], { env });
    },
    ['stripe-mock'],
  );
  return path.join(folder, 'stripe-mock');
}
