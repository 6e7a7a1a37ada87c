// Compresses built files once, at build time. The server sends these to browsers that accept them, so the first load is
// small without work for each request.
import { readdir, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import type { Plugin } from 'vite';

const brotli = promisify(brotliCompress);
const deflate = promisify(gzip);

const LEVEL = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };

/** Writes FILE.br and FILE.gz beside every file of the build. */
export const compress = (): Plugin => ({
  name: 'compress',
  apply: 'build',
  async writeBundle({ dir = 'dist' }) {
    const entries = await readdir(dir, { recursive: true, withFileTypes: true });
    const files = entries.filter((entry) => entry.isFile()).map(({ parentPath, name }) => path.join(parentPath, name));
    await Promise.all(files.map(compressFile));
  },
});

async function compressFile(file: string): Promise<void> {
  const content = await readFile(file);
  await Promise.all([
    brotli(content, LEVEL).then((data) => writeFile(`${file}.br`, data)),
    deflate(content, { level: 9 }).then((data) => writeFile(`${file}.gz`, data)),
  ]);
}
