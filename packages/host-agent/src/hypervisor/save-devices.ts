// Saves the device state of a running VM as a migration stream, so that a VM restored from it runs at once. The guest's
// memory is already a file (`x-ignore-shared` leaves it out), so the stream has only about 80 KB. QEMU sends it to a
// socket of the agent, because its sandbox forbids it to run programs or open files.
import { once } from 'node:events';
import { chmodSync, closeSync, createWriteStream, openSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { QmpClient } from './qmp.ts';

const SOCKET = 'state.sock';
/** Saving takes 0.2 s under emulation. This limit only ends saves that hang. */
const SAVE_TIMEOUT_MS = 30_000;
const POLL_MS = 5;

/**
 * Resolves when the file at `path` holds the complete state. Throws with QEMU's reason, and when saving takes longer
 * than 30 s.
 */
export async function saveDevices(qmp: QmpClient, runDir: string, path: string): Promise<void> {
  const timeout = AbortSignal.timeout(SAVE_TIMEOUT_MS);
  const server = createServer();
  // The path of a Unix socket may have at most 108 bytes, so /proc/self/fd stands in for the directory's path.
  const dir = openSync(runDir, 'r');
  try {
    server.listen(`/proc/self/fd/${dir}/${SOCKET}`);
    await once(server, 'listening', { signal: timeout });
    chmodSync(`/proc/self/fd/${dir}/${SOCKET}`, 0o666);
    const received = once(server, 'connection', { signal: timeout }).then(([socket]: Socket[]) =>
      pipeline(socket as Socket, createWriteStream(path, { mode: 0o600, flush: true }), { signal: timeout }),
    );
    received.catch(() => {});
    await qmp.execute('migrate-set-capabilities', { capabilities: [{ capability: 'x-ignore-shared', state: true }] });
    await qmp.execute('migrate', { uri: `unix:${SOCKET}` });
    // If QEMU cannot connect to the socket, nothing is ever received, and only the migration status tells the reason.
    await Promise.all([received, migrationEnd(qmp, timeout)]);
  } finally {
    server.close();
    closeSync(dir);
  }
}

async function migrationEnd(qmp: QmpClient, timeout: AbortSignal): Promise<void> {
  for (;;) {
    const { status, 'error-desc': why } = Object(await qmp.execute('query-migrate')) as Record<string, string>;
    if (status === 'completed') return;
    if (status === 'failed' || status === 'cancelled') throw new Error(`the state was not saved: ${why ?? status}`);
    await delay(POLL_MS, undefined, { signal: timeout });
  }
}
