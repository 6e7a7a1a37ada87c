// The secret that signs cursors and session cookies. It is made once and kept in the data directory.
import { randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { writeAtomically } from '../private-file.ts';
import { hasErrorCode } from '../problem.ts';

/** Reads the secret of the data directory, or makes it. */
export async function ensureSecret(file: string): Promise<string> {
  try {
    const text = (await readFile(file, 'utf8')).trim();
    if (text !== '') return text;
  } catch (error) {
    if (!hasErrorCode(error, 'ENOENT')) throw error;
  }
  const secret = randomBytes(32).toString('base64url');
  await writeAtomically(file, `${secret}\n`);
  return secret;
}
