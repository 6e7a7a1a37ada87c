// The images of this host as the agent tells them: read at the start, and again when one was published or when some time
// is over, since a folder of an odd file system may tell nothing.
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

/** `onChange` is told each time that they were read again. */
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

/** publish.ts touches the folder. A host without a watch to spare has the timer. */
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
