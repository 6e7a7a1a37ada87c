// Generates the types of the API's paths from its OpenAPI documents (`npm run generate -w packages/dashboard`).
import { execFile } from 'node:child_process';
import { writeFile } from 'node:fs/promises';
import { createRequire } from 'node:module';
import path from 'node:path';
import { text } from 'node:stream/consumers';

const CHECKOUT = path.join(import.meta.dirname, '../../../..');
const { resolve } = createRequire(import.meta.url);
const OPENAPI_TYPESCRIPT = path.join(path.dirname(resolve('openapi-typescript/package.json')), 'bin/cli.js');
const BIOME = resolve('@biomejs/biome/bin/biome');

/** The documents, relative to the checkout, and the file in this folder that is generated from each. */
export const SCHEMAS = [
  { document: 'openapi/openapi.json', file: 'schema.d.ts' },
  { document: 'openapi/admin.json', file: 'admin-schema.d.ts' },
] as const;

type Schema = (typeof SCHEMAS)[number];

export const pathOf = ({ file }: Schema): string => path.join(import.meta.dirname, file);

/** The types of a document, formatted as the repository's other files. */
export async function generate({ document, file }: Schema): Promise<string> {
  const types = await run(OPENAPI_TYPESCRIPT, [document, '--default-non-nullable=false'], '');
  return run(BIOME, ['format', `--stdin-file-path=packages/dashboard/src/api/${file}`], types);
}

/** Runs a Node program in the checkout and returns what it prints. */
async function run(program: string, args: readonly string[], input: string): Promise<string> {
  const child = execFile(process.execPath, [program, ...args], { cwd: CHECKOUT, maxBuffer: Number.POSITIVE_INFINITY });
  const { stdin, stdout, stderr } = child;
  if (!stdin || !stdout || !stderr) throw new Error('A child process has no pipes.');
  stdin.end(input);
  const { promise, resolve: end, reject } = Promise.withResolvers<number | null>();
  child.once('error', reject).once('close', end);
  const [code, printed, problems] = await Promise.all([promise, text(stdout), text(stderr)]);
  if (code !== 0) throw new Error(`${program} failed: ${problems}`);
  return printed;
}

if (import.meta.main) {
  for (const schema of SCHEMAS) await writeFile(pathOf(schema), await generate(schema));
}
