// What the host agent tells of itself over its socket: how machines are isolated, and how full the pool is.
import { setTimeout as delay } from 'node:timers/promises';
import type { Isolation } from '@sandbar/contract/machine-states.ts';
import { getUnixJson } from '@sandbar/service/unix-request.ts';

export type HostInfo = {
  isolation: Isolation;
  /** Ready clones in the pool, and how many the pool aims for. Undefined when the service has no pool. */
  pool: { ready: number; target: number } | undefined;
};

const POLL_MS = 50;
/** Under emulation each clone takes about a second to restore and warm up, and the first template needs a cold boot. */
const FULL_WITHIN_MS = 120_000;

export async function readHostInfo(socketPath: string): Promise<HostInfo> {
  const info = await getUnixJson<Record<string, unknown>>(socketPath, '/v1/host');
  const pool = info.pool as { ready?: unknown; target?: unknown } | undefined;
  return {
    isolation: info.isolation === 'kvm' ? 'kvm' : 'emulated',
    pool: pool === undefined ? undefined : { ready: Number(pool.ready), target: Number(pool.target) },
  };
}

/**
 * Resolves with true when the pool is full, or with false when there is no pool. Throws when it does not fill in time.
 */
export async function waitForFullPool(socketPath: string): Promise<boolean> {
  for (const until = performance.now() + FULL_WITHIN_MS; ; await delay(POLL_MS)) {
    const { pool } = await readHostInfo(socketPath);
    if (pool === undefined) return false;
    if (pool.target > 0 && pool.ready >= pool.target) return true;
    if (performance.now() > until) {
      throw new Error(`the pool stays at ${pool.ready} of ${pool.target} clones for ${FULL_WITHIN_MS / 1000} s`);
    }
  }
}
