// Passes the bytes of a copy from one host to another. Hosts cannot call each other: only the control plane has a
// certificate that they accept. The slower side sets the pace, and this process holds a few blocks of a copy at most.
import { Transform } from 'node:stream';
import type { App } from '../app.ts';
import type { HostCopy } from '../db/tables.ts';
import { type CopySubject, HostUnavailable, type ReceivedCopy } from '../hosts/client.ts';
import { isShuttingDown } from '../operations/refusals.ts';

/**
 * Copies a volume or a stopped machine to another host, as the given generation. May be repeated. Throws the hosts'
 * refusals, `host_unavailable` when a connection breaks or nothing passes for `copyIdleMs`, and `shutting_down`.
 */
export async function copyToHost(
  app: App,
  fromHostId: string,
  toHostId: string,
  copy: CopySubject & Pick<HostCopy, 'generation'>,
): Promise<ReceivedCopy> {
  const controller = new AbortController();
  const { signal } = controller;
  const idleMs = app.config.timing.copyIdleMs;
  const onIdle = () => controller.abort(new HostUnavailable(true, new Error(`Nothing passed for ${idleMs} ms.`)));
  let idle = setTimeout(onIdle, idleMs);
  const onClosing = () => controller.abort(isShuttingDown());
  if (app.closing.aborted) onClosing();
  else app.closing.addEventListener('abort', onClosing, { once: true });
  const watched = new Transform({
    transform: (piece, _encoding, done) => {
      clearTimeout(idle);
      idle = setTimeout(onIdle, idleMs);
      done(null, piece);
    },
  });
  watched.on('error', () => undefined);
  try {
    const content = await app.hosts.client(fromHostId).sendCopy(copy, signal);
    content.on('error', (error) => watched.destroy(error));
    content.once('close', () => {
      if (!content.readableEnded) watched.destroy(new Error('The connection to the old host broke.'));
    });
    content.pipe(watched);
    try {
      return await app.hosts.client(toHostId).receiveCopy(copy, copy.generation, watched, signal);
    } finally {
      content.destroy();
      watched.destroy();
    }
  } catch (error) {
    throw signal.aborted ? signal.reason : error;
  } finally {
    clearTimeout(idle);
    app.closing.removeEventListener('abort', onClosing);
  }
}
