// Makes the type declarations of a package, one file for each entry. The compiler writes a declaration file for each
// source, types that are derived from schemas become plain types, and the bundler joins the files.
import { execFile } from 'node:child_process';
import { existsSync } from 'node:fs';
import { glob, readFile, writeFile } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { build } from 'tsdown';
import { type Schema, typeText } from './type-text.ts';

const execute = promisify(execFile);

/**
 * The first line of every declaration file. `Sandbox` implements AsyncDisposable, which a consumer's `lib` may lack.
 */
const HEAD = '/// <reference lib="esnext.disposable" />';

export type DeclarationJob = {
  checkout: string;
  /** The sources of the entries by the name of the built file, absolute. */
  entries: Readonly<Record<string, string>>;
  /** A folder for intermediate files. It is empty at first. */
  scratch: string;
  outDir: string;
  /** Names of the workspaces whose types are copied, because they are not published. */
  inlined: readonly string[];
  /** Packages whose types are imported and not copied. */
  external: readonly string[];
};

/**
 * Writes a `.d.ts` for each entry into `outDir`, and one for declarations that several entries share. Throws Error with
 * the messages of the compiler.
 */
export async function writeDeclarations(job: DeclarationJob): Promise<void> {
  const { checkout, entries, scratch, outDir, external } = job;
  await compile(job);
  for await (const file of glob('packages/**/src/**/*.d.ts', { cwd: scratch })) {
    const source = path.join(checkout, file.replace(/\.d\.ts$/, '.ts'));
    const emitted = await readFile(path.join(scratch, file), 'utf8');
    const plain = withLocalImports(await withPlainTypes(emitted, source), path.join(scratch, file), scratch);
    await writeFile(path.join(scratch, file), plain);
  }
  await build({
    config: false,
    cwd: scratch,
    entry: Object.fromEntries(
      Object.entries(entries).map(([name, source]) => [
        name,
        path.join(scratch, path.relative(checkout, source)).replace(/\.ts$/, '.d.ts'),
      ]),
    ),
    outDir,
    clean: false,
    format: 'esm',
    platform: 'neutral',
    target: false,
    treeshake: { moduleSideEffects: false },
    fixedExtension: false,
    tsconfig: false,
    report: false,
    logLevel: 'warn',
    failOnWarn: true,
    deps: { neverBundle: [...external, 'typebox', '#platform', /^node:/] },
    dts: { generator: 'oxc', dtsInput: true, emitDtsOnly: true, tsconfig: false },
    banner: { dts: HEAD },
  });
}

async function compile({ checkout, entries, scratch, inlined }: DeclarationJob): Promise<void> {
  // With `type: module` the bundler names the file of shared declarations `.d.ts`. Otherwise it would be `.d.mts`.
  await writeFile(path.join(scratch, 'package.json'), JSON.stringify({ type: 'module' }));
  const project = path.join(scratch, 'tsconfig.json');
  // Without these paths the compiler would treat the workspaces as installed packages and write nothing for them.
  const paths = inlined.map((name) => [`@sandbar/${name}/*`, [path.join(checkout, 'packages', name, 'src', '*')]]);
  await writeFile(
    project,
    JSON.stringify({
      extends: path.join(checkout, 'tsconfig.json'),
      compilerOptions: {
        noEmit: false,
        declaration: true,
        emitDeclarationOnly: true,
        rootDir: checkout,
        outDir: scratch,
        paths: Object.fromEntries(paths),
        typeRoots: [path.join(checkout, 'node_modules', '@types')],
      },
      files: Object.values(entries),
      include: [],
    }),
  );
  const compiler = path.join(checkout, 'node_modules', 'typescript', 'bin', 'tsc');
  await execute(process.execPath, [compiler, '-p', project]).catch((error: { stdout?: string }) => {
    throw new Error(
      `The declarations of ${Object.values(entries).join(' and ')} cannot be made:\n${error.stdout ?? String(error)}`,
    );
  });
}

/** Matches the declaration of a schema with its doc comment, up to the first `;` before a line without indentation. */
const SCHEMA = /(?:\/\*\*(?:(?!\*\/)[\s\S])*\*\/\n)?export declare const (\w+): [\s\S]*?;\n(?![\s}])/g;
const DERIVED = /export type (\w+) = Static<typeof \1>;/g;

/**
 * Replaces types such as `Static<typeof Machine>` by plain types made from the schema. The type of a schema that its
 * source does not export stays unchanged. If a public type needs it, the check of the package fails.
 */
async function withPlainTypes(declarations: string, source: string): Promise<string> {
  const derived = Array.from(declarations.matchAll(DERIVED), ([, name = '']) => name);
  if (derived.length === 0) return declarations;
  const schemas = (await import(source)) as Record<string, Schema>;
  const names = new Set(derived.filter((name) => schemas[name] !== undefined));
  const typed = declarations.replaceAll(DERIVED, (whole, name: string) => {
    const schema = schemas[name];
    if (schema === undefined) return whole;
    const words = schema.description ?? docOf(declarations, name);
    return `${words === undefined ? '' : `/** ${words} */\n`}export type ${name} = ${typeText(schema, names)};`;
  });
  return typed.replaceAll(SCHEMA, (whole, name: string) => (names.has(name) ? '' : whole));
}

/** The doc comment of a schema, in one line. */
function docOf(declarations: string, name: string): string | undefined {
  const before = declarations.split(`export declare const ${name}:`)[0]?.trimEnd() ?? '';
  const comment = before.endsWith('*/') ? before.slice(before.lastIndexOf('/**') + 3, -2) : undefined;
  return comment?.replaceAll(/\s*\n\s*\*\s?/g, ' ').trim();
}

/** Replaces imports of source files, and of workspaces that are part of the build, by imports of their declaration files. */
function withLocalImports(declarations: string, file: string, scratch: string): string {
  return declarations.replaceAll(
    /(['"])(@sandbar\/([\w-]+)\/|\.\.?\/)([\w./-]+)\.ts\1/g,
    (whole, quote, start, name, rest) => {
      const target =
        name === undefined
          ? path.resolve(path.dirname(file), `${start}${rest}.d.ts`)
          : path.join(scratch, 'packages', name, 'src', `${rest}.d.ts`);
      return existsSync(target) ? `${quote}${target}${quote}` : whole;
    },
  );
}
