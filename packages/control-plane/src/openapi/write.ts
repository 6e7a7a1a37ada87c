// Writes openapi/openapi.json and openapi/admin.json of the repository. A test fails when a file differs from what the
// routes say.
import { mkdir, writeFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import { describeApis } from './describe.ts';

const FOLDER = new URL('../../../../openapi/', import.meta.url);
/** The copies of the documents that are kept in the repository. */
export const DOCUMENT_PATHS = {
  api: fileURLToPath(new URL('openapi.json', FOLDER)),
  admin: fileURLToPath(new URL('admin.json', FOLDER)),
};

if (import.meta.main) {
  await mkdir(FOLDER, { recursive: true });
  const documents = await describeApis();
  for (const name of ['api', 'admin'] as const) {
    await writeFile(DOCUMENT_PATHS[name], `${JSON.stringify(documents[name], null, 2)}\n`);
    process.stdout.write(`Wrote ${DOCUMENT_PATHS[name]}\n`);
  }
}
