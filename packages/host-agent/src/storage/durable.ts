// What must survive a power cut is written out before anything relies on it.
import { open } from 'node:fs/promises';

/** Makes a file's content or a folder's entries durable. What is gone has nothing to lose. */
export async function syncPath(path: string): Promise<void> {
  const file = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  await file?.sync().finally(() => file.close());
}
