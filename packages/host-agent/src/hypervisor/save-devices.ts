// Saves the state of a VM's devices while it runs, so that what is restored from it runs at once. Its memory is a file
// already (`x-ignore-shared`); what is left is some 80 KB, which QEMU sends to a socket of ours: it may neither run a
// program nor open a file under its sandbox.
import { once } from 'node:events';
import { chmodSync, closeSync, createWriteStream, openSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import { pipeline } from 'node:stream/promises';
import { setTimeout as delay } from 'node:timers/promises';
import type { QmpClient } from './qmp.ts';

const SOCKET = 'state.sock';
/** It takes 0.2 s under emulation. */
const SAVE_TIMEOUT_MS = 30_000;
const POLL_MS = 5;

/** Resolves when the file holds all of it. Throws with QEMU's reason, and when it takes longer than 30 s. */
export async function saveDevices(qmp: QmpClient, runDir: string, path: string): Promise<void> {
  const timeout = AbortSignal.timeout(SAVE_TIMEOUT_MS);
  const server = createServer();
  // The path of a socket may have 108 bytes.
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
    // When QEMU does not get to the socket, nothing is ever received, and only its state says why.
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
