// Reads the state of the clone pool from the host agent, because the public API does not show it.
import { setTimeout as delay } from 'node:timers/promises';
import { homePaths } from '@sandbar/contract/home.ts';
import { HOST_PATHS, type HostInfo } from '@sandbar/contract/host-api.ts';
import { getUnixJson } from '@sandbar/service/unix-request.ts';

/**
 * Filling the pool takes a cold boot, a copy of the memory, and one restore for each clone. In this VM each of them is
 * ten times slower than usual.
 */
const READY_WITHIN_MS = 600_000;
const POLL_MS = 500;

/** Resolves when the pool has reached its target size. Throws when it has not after `READY_WITHIN_MS`. */
export async function clonesReady(home: string): Promise<void> {
  for (const until = performance.now() + READY_WITHIN_MS; ; await delay(POLL_MS)) {
    const { pool } = await getUnixJson<HostInfo>(homePaths(home).hostAgentSocket, HOST_PATHS.host);
    if (pool !== undefined && pool.target > 0 && pool.ready >= pool.target) return;
    if (performance.now() > until) throw new Error(`the pool is still ${JSON.stringify(pool)}`);
  }
}
