// Builds one published package: its code, its types, its package.json, and the texts that come with it.
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { build as bundle } from 'tsdown';
import { writeDeclarations } from './declarations.ts';
import { inlinedWorkspaces, manifestOf, readWorkspace } from './manifest.ts';
import { type PublishedPackage, publicEntries } from './packages.ts';
import { withoutService } from './service-commands.ts';
import { thirdPartyLicenses } from './third-party.ts';

/** The oldest Node that runs the code. The bundler rewrites newer syntax for it. */
const TARGET = 'node20';

/** Builds the package into `target`, whose content is replaced. Throws Error. */
export async function buildPackage(published: PublishedPackage, checkout: string, target: string): Promise<void> {
  const folder = path.join(checkout, 'packages', published.folder);
  await rm(target, { recursive: true, force: true });
  await mkdir(target, { recursive: true });
  const workspace = await readWorkspace(folder);
  const inlined = inlinedWorkspaces(workspace);
  const external = Object.keys({ ...workspace.dependencies, ...workspace.peerDependencies }).filter(
    (name) => !inlined.some((workspaceName) => name === `@sandbar/${workspaceName}`),
  );

  const modules = await bundleCode(published, checkout, path.join(target, 'dist'), inlined, external);
  const entries = publicEntries(published).map((name) => [name, path.join(folder, published.entries[name] ?? '')]);
  if (entries.length > 0) {
    const scratch = await mkdtemp(path.join(tmpdir(), 'sandbar-declarations-'));
    const job = {
      checkout,
      entries: Object.fromEntries(entries),
      scratch,
      outDir: path.join(target, 'dist'),
      inlined,
      external,
    };
    await writeDeclarations(job).finally(() => rm(scratch, { recursive: true, force: true }));
  }
  const manifest = await manifestOf(published, checkout);
  await writeFile(path.join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);
  await copyFile(path.join(folder, 'README.md'), path.join(target, 'README.md'));
  const license = path.join(checkout, 'LICENSE');
  if (existsSync(license)) await copyFile(license, path.join(target, 'LICENSE'));
  const licenses = await thirdPartyLicenses(modules);
  if (licenses !== undefined) await writeFile(path.join(target, 'THIRD_PARTY_LICENSES'), licenses);
}

/** Writes the JavaScript and resolves with the paths of all source files in it. */
async function bundleCode(
  { folder: name, entries, kind, command, isSelfContained, imports = {} }: PublishedPackage,
  checkout: string,
  outDir: string,
  inlined: readonly string[],
  external: readonly string[],
): Promise<Set<string>> {
  const folder = path.join(checkout, 'packages', name);
  const names = isSelfContained ? [] : [...external, ...Object.keys(imports)];
  const { bundles } = await bundle({
    config: false,
    cwd: folder,
    entry: Object.fromEntries(Object.entries(entries).map(([name, file]) => [name, path.join(folder, file)])),
    outDir,
    format: 'esm',
    // A library stays neutral: `#platform` chooses the code for Node or browsers when the program is run or bundled.
    platform: kind === 'program' ? 'node' : 'neutral',
    target: TARGET,
    fixedExtension: false,
    dts: false,
    tsconfig: false,
    report: false,
    logLevel: 'warn',
    failOnWarn: true,
    plugins: [withoutService(checkout)],
    deps: {
      alwaysBundle: isSelfContained ? [/./] : inlined.map((name) => new RegExp(`^@sandbar/${name}(/|$)`)),
      neverBundle: [/^node:/, ...names.map((name) => new RegExp(`^${name}(/|$)`))],
      onlyBundle: false,
    },
  });
  if (command !== undefined) await addShebang(path.join(outDir, `${command}.js`));
  return new Set(
    bundles.flatMap(({ chunks }) => chunks.flatMap((chunk) => ('moduleIds' in chunk ? chunk.moduleIds : []))),
  );
}

async function addShebang(file: string): Promise<void> {
  await writeFile(file, `#!/usr/bin/env node\n${await readFile(file, 'utf8')}`);
  await chmod(file, 0o755);
}
