// Tests the packages in the form in which npm would publish them: which files they have, and that they install and run
// in an empty project on every runtime.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
import { nameOf, PUBLISHED } from '@sandbar/packaging/packages.ts';
import { publint } from 'publint';
import { formatMessage } from 'publint/utils';
import { rolldown } from 'rolldown';
import { CHECKOUT } from './support/prepared.ts';
import { installPackages, type Project } from './support/project.ts';
import { run, withoutService } from './support/run.ts';
import { ensureTools, type Tools } from './support/tools.ts';

/**
 * Prints the version, and whether a failed write throws the exported ConnectionError. It would not if the build had put a
 * second copy of the class into the platform's file. Nothing listens on the port.
 */
const SDK_PROGRAM = `
import { Client, ConnectionError, SandbarError, VERSION } from '@sandbar/sdk';
const client = new Client({ baseUrl: 'http://127.0.0.1:9', apiKey: 'key', retryForSec: 0 });
const error = await client.files('machine').write('/a', (async function* () { yield new Uint8Array(1); })()).catch((e) => e);
let missing;
try { new Client(); } catch (e) { missing = e.name; }
console.log(JSON.stringify([VERSION, error instanceof ConnectionError, error instanceof SandbarError, missing]));
`;

describe('the packages for npm', { concurrency: 2 }, () => {
  let project: Project;
  let tools: Tools;
  before(async () => {
    tools = await ensureTools();
    project = await installPackages();
  });
  after(() => project?.remove());

  const installed = (folder: string) => path.join(project.folder, 'node_modules', '@sandbar', path.basename(folder));
  const tarball = (folder: string) => project.tarballs.get(folder) ?? assert.fail(`no tarball of ${folder}`);

  for (const published of PUBLISHED) {
    const { folder, kind } = published;
    const name = nameOf(published);
    it(`${name} passes publint without a suggestion`, async () => {
      const pkgDir = installed(folder);
      const manifest = JSON.parse(await readFile(path.join(pkgDir, 'package.json'), 'utf8'));
      const { messages } = await publint({ pkgDir, pack: false, strict: true });
      assert.deepEqual(
        messages.map((message) => formatMessage(message, manifest, { color: false })),
        [],
      );
    });

    it(`${name} holds a README, the licence and built files only`, async () => {
      const { stdout } = await run('tar', ['-tzf', tarball(folder)], { cwd: project.folder });
      const files = stdout
        .trim()
        .split('\n')
        .map((name) => name.replace(/^package\//, ''));
      const other = files.filter((name) => !/^dist\/[\w./-]+(\.js|\.d\.ts)$/.test(name));
      const optional = ['LICENSE', 'THIRD_PARTY_LICENSES'];
      assert.deepEqual(other.filter((name) => !optional.includes(name)).sort(), ['README.md', 'package.json']);
      assert.equal(other.includes('THIRD_PARTY_LICENSES'), folder === 'cli');
    });

    if (kind === 'library') {
      it(`${name} has types that TypeScript finds in every mode of module resolution`, async () => {
        const analysis = await checkPackage(createPackageFromTarballData(await readFile(tarball(folder))));
        assert.ok(analysis.types, 'no types');
        // Ignore that CommonJS code can load an ES module with require() only from Node 20.19 on.
        const problems = analysis.problems.filter(({ kind }) => kind !== 'CJSResolvesToESM');
        assert.deepEqual(problems, []);
      });
    }
  }

  it('the SDK does not mention the schema library, and no type is any', async () => {
    for (const name of ['index.js', 'index.d.ts', 'platform/node.js', 'platform/web.js']) {
      const text = await readFile(path.join(installed('sdk'), 'dist', name), 'utf8');
      assert.doesNotMatch(text, /typebox/i, name);
      if (!name.endsWith('.d.ts')) continue;
      const code = text.replaceAll(/\/\*[\s\S]*?\*\//g, '');
      assert.doesNotMatch(code.replaceAll(/'[^'\n]*'|"[^"\n]*"/g, "''"), /\bany\b/, name);
      assert.doesNotMatch(code, /from ["'](?!\.)/, `${name} imports the types of a package`);
    }
  });

  it('the SDK runs on Node 20, Node 24, Deno and Bun', async () => {
    const program = await project.write('sdk.mjs', SDK_PROGRAM);
    const { version } = JSON.parse(await readFile(path.join(CHECKOUT, 'packages/sdk/package.json'), 'utf8'));
    for (const { name, program: runtime, args } of tools.runtimes) {
      const said = await run(runtime, [...args, program], { cwd: project.folder, env: withoutService(project.folder) });
      const stdout = `${JSON.stringify([version, true, false, 'ConfigurationError'])}\n`;
      assert.deepEqual({ name, ...said }, { name, code: 0, stdout, stderr: '' });
    }
  });

  it('a bundle of the SDK for browsers imports nothing of Node', async () => {
    const input = await project.write('browser.js', "export * from '@sandbar/sdk';");
    const bundle = await rolldown({ input, cwd: project.folder, platform: 'browser', treeshake: false });
    const { output } = await bundle.generate({ format: 'esm' });
    await bundle.close();
    assert.deepEqual(
      output.flatMap((chunk) => ('imports' in chunk ? [...chunk.imports, ...chunk.dynamicImports] : [])),
      [],
    );
    for (const chunk of output) {
      const text = 'code' in chunk ? chunk.code : '';
      assert.ok(text.includes('SandbarError'), 'the bundle has no SDK');
      assert.deepEqual(text.match(/["']node:[\w/]+|\brequire\(/g), null);
    }
  });

  it('npx sandbar starts on Node 20, and a command for the computer of the service says that it runs only there', async () => {
    const [node20] = tools.runtimes;
    const env = { npm_config_loglevel: 'error', PATH: `${path.dirname(node20?.program ?? '')}:${process.env.PATH}` };
    const npx = (...args: string[]) => run('npx', ['--no-install', 'sandbar', ...args], { cwd: project.folder, env });
    const { version } = JSON.parse(await readFile(path.join(CHECKOUT, 'packages/cli/package.json'), 'utf8'));
    assert.deepEqual(await npx('--version'), { code: 0, stdout: `${version}\n`, stderr: '' });
    const build = await npx('image', 'build', 'base');
    assert.notEqual(build.code, 0);
    assert.match(build.stderr, /^sandbar: this command runs on the computer of the service.*\n$/);
  });

  it('sandbar mcp, whose libraries are part of the package, answers a client on Node 20', async () => {
    const [node20] = tools.runtimes;
    const clientInfo = { name: 'test', version: '1' };
    const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo };
    const input = await project.write(
      'mcp.json',
      `${JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params })}\n`,
    );
    const command = [node20?.program ?? '', path.join(installed('cli'), 'dist', 'sandbar.js'), 'mcp'];
    const env = {
      ...withoutService(project.folder),
      SANDBAR_BASE_URL: 'http://127.0.0.1:9',
      SANDBAR_API_KEY: 'sbr_key',
    };
    const said = await run('sh', ['-c', '"$@" < "$0"', input, ...command], { cwd: project.folder, env });
    assert.deepEqual([said.code, said.stderr], [0, '']);
    assert.equal(JSON.parse(said.stdout).result.serverInfo.name, 'sandbar');
  });
});
