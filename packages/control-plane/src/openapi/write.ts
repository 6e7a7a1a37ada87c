// Writes openapi/openapi.json of the repository. A test fails when the file differs from what the routes say.
import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describeApi } from './describe.ts';

/** The copy of the document that is kept in the repository. */
export const DOCUMENT_PATH = fileURLToPath(new URL('../../../../openapi/openapi.json', import.meta.url));

if (import.meta.main) {
  await mkdir(new URL('.', `file://${DOCUMENT_PATH}`), { recursive: true });
  await writeFile(DOCUMENT_PATH, `${JSON.stringify(await describeApi(), null, 2)}\n`);
  process.stdout.write(`Wrote ${DOCUMENT_PATH}\n`);
}
