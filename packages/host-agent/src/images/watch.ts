// Keeps the list of this host's images current: reads it at start, whenever an image is published, and every 30 s,
// because some file systems send no change events.
import { type FSWatcher, mkdirSync, watch } from 'node:fs';
import type { Image } from '@sandbar/contract/image.ts';
import type { FastifyBaseLogger } from 'fastify';
import { describeImages } from './machine-image.ts';
import { imagesFolder } from './store.ts';

const REFRESH_MS = 30_000;

export type ImageWatch = {
  current(): Image[];
  close(): void;
};

/**
 * Reads the images in `cacheDir` and keeps the list current until `close` is called. Calls `onChange` after every later
 * read. Throws when the first read fails.
 */
export async function watchImages(
  cacheDir: string,
  log: Pick<FastifyBaseLogger, 'warn'>,
  onChange?: () => void,
): Promise<ImageWatch> {
  const read = () => describeImages(cacheDir, (err, stack) => log.warn({ err, stack }, 'an image cannot be used'));
  let images = await read();
  let isStale = false;
  let isReading = false;
  const refresh = async () => {
    isStale = true;
    if (isReading) return;
    isReading = true;
    while (isStale) {
      isStale = false;
      try {
        images = await read();
        onChange?.();
      } catch (err) {
        log.warn({ err }, 'images could not be read');
      }
    }
    isReading = false;
  };
  const timer = setInterval(() => void refresh(), REFRESH_MS);
  const watcher = watchFolder(imagesFolder(cacheDir), () => void refresh());
  return {
    current: () => images,
    close: () => {
      clearInterval(timer);
      watcher?.close();
    },
  };
}

/**
 * Watches the folder that publish.ts touches. Returns undefined when the host has no inotify watches left; the timer
 * then suffices.
 */
function watchFolder(folder: string, onEvent: () => void): FSWatcher | undefined {
  try {
    mkdirSync(folder, { recursive: true });
    const watcher = watch(folder, { persistent: false }, onEvent);
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}
