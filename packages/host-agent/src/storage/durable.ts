// Writes data to disk that must survive a power cut, before anything relies on it.
import { open } from 'node:fs/promises';

/** Makes a file's content, or a folder's entries, durable. Does nothing when the path does not exist. */
export async function syncPath(path: string): Promise<void> {
  const file = await open(path, 'r').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  await file?.sync().finally(() => file.close());
}
