// Writes files that only the owner of the data directory may read. A crash never leaves a half-written file.
import { randomBytes } from 'node:crypto';
import { open, rename, rm } from 'node:fs/promises';

/** Replaces a file, mode 0600. Its content is on disk when this resolves. */
export async function writeAtomically(file: string, text: string): Promise<void> {
  const temporary = `${file}.${randomBytes(4).toString('hex')}`;
  const handle = await open(temporary, 'wx', 0o600);
  try {
    await handle.writeFile(text);
    await handle.sync();
    await rename(temporary, file);
  } catch (error) {
    await rm(temporary, { force: true });
    throw error;
  } finally {
    await handle.close();
  }
}
