// Sends a job's output as server-sent events until the stream ends. A slow client slows down only the reading of the
// host's output file, never the job.
import { once } from 'node:events';
import type { Writable } from 'node:stream';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { App } from '../app.ts';
import { sleep } from '../concurrency.ts';
import type { OutputPage } from '../hosts/client.ts';
import { type OutputTarget, readPageOfOutput, writePage } from './output.ts';

/**
 * How long the host may be unreachable (for example while its agent restarts) before the event stream ends and the
 * client has to resume.
 */
const HOST_AWAY_MS = 30_000;
const RETRY_MS = 500;

type Reading = { offset: number; limit: number };

/**
 * Writes events from `offset` on. Ends at the end of the output, or when `signal` is aborted because the client
 * disconnected or the service shuts down. Never throws.
 */
export async function streamOutput(
  app: App,
  target: OutputTarget,
  reading: Reading,
  sink: Writable,
  signal: AbortSignal,
): Promise<void> {
  const heartbeatMs = app.config.timing.streamHeartbeatMs;
  let { offset } = reading;
  let awayMs = 0;
  try {
    while (!signal.aborted) {
      const page = await readPageOfOutput(
        app,
        target,
        { offset, limit: reading.limit, waitMs: heartbeatMs },
        signal,
      ).catch((error: unknown) => {
        if (isPassing(error) && awayMs < HOST_AWAY_MS) return undefined;
        throw error;
      });
      if (!page) {
        awayMs += RETRY_MS;
        await sleep(RETRY_MS, signal);
        continue;
      }
      awayMs = 0;
      await write(sink, asEvent(target, offset, page), signal);
      offset = page.nextOffset;
      if (page.eof) break;
    }
  } catch (error) {
    if (!signal.aborted) app.log.warn({ err: error, exec_id: target.exec.id }, 'a stream of output ended early');
  }
  sink.end();
}

const isPassing = (error: unknown): boolean => error instanceof ServiceError && error.code === 'host_unavailable';

/** Formats a page as an event. A page without new bytes becomes an SSE comment, which keeps the connection alive. */
function asEvent(target: OutputTarget, offset: number, page: OutputPage): Buffer {
  if (page.bytes.length === 0 && !page.eof) return Buffer.from(':\n\n');
  const id = Buffer.from(`id: ${page.nextOffset}\ndata: `);
  return Buffer.concat([id, writePage(target, offset, page), Buffer.from('\n\n')]);
}

async function write(sink: Writable, text: Buffer, signal: AbortSignal): Promise<void> {
  if (!sink.write(text)) await once(sink, 'drain', { signal });
}
