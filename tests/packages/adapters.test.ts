// Tests the packages of the adapters in the form in which npm would publish them. Their peer dependencies come from the
// checkout.
import assert from 'node:assert/strict';
import { readdir, readFile, symlink } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CHECKOUT } from './support/prepared.ts';
import { installPackages, type Project, readmeExample } from './support/project.ts';
import { run, withoutService } from './support/run.ts';
import { ensureTools, type Tools } from './support/tools.ts';

const PEERS = ['computesdk', '@computesdk/provider', 'deepagents', '@ai-sdk/provider-utils'];
/** Only the harness needs this peer dependency. */
const OPTIONAL_PEER = '@ai-sdk/harness';
const ADAPTERS = ['computesdk', 'ai-sdk', 'deepagents'];

/**
 * Proves that no adapter contains a copy of the SDK or of its peer: the adapter throws the error class of the project's
 * SDK, and extends the class of the project's peer.
 */
const ADAPTERS_PROGRAM = `
import { ConfigurationError } from '@sandbar/sdk';
import { sandbar } from '@sandbar/computesdk';
import { SandbarSandbox } from '@sandbar/deepagents';
import { BaseSandbox } from 'deepagents';
const thrown = await new Promise((resolve) => resolve(sandbar())).catch((error) => error);
const rejected = await SandbarSandbox.create().catch((error) => error);
console.log(thrown instanceof ConfigurationError, rejected instanceof ConfigurationError, SandbarSandbox.prototype instanceof BaseSandbox);
`;
const AI_SDK_PROGRAM = `
import { ConfigurationError } from '@sandbar/sdk';
import { SandbarSession } from '@sandbar/ai-sdk';
console.log((await SandbarSession.create().catch((error) => error)) instanceof ConfigurationError);
`;
const HARNESS_PROGRAM = `
import { HarnessSandboxAuthenticationError } from '@ai-sdk/harness';
import { createSandbarSandbox } from '@sandbar/ai-sdk/harness';
console.log((await createSandbarSandbox().createSession().catch((error) => error)) instanceof HarnessSandboxAuthenticationError);
`;

/** Compiles only if the adapters' types fit the types of their peers and of the SDK. */
const ADAPTERS_CONSUMER = `
import type { Experimental_SandboxSession as Session } from '@ai-sdk/provider-utils';
import type { HarnessV1SandboxProvider } from '@ai-sdk/harness';
import { SandbarSession } from '@sandbar/ai-sdk';
import { createSandbarSandbox } from '@sandbar/ai-sdk/harness';
import { sandbar } from '@sandbar/computesdk';
import { SandbarSandbox } from '@sandbar/deepagents';
import type { Sandbox } from '@sandbar/sdk';
import { compute } from 'computesdk';
import type { SandboxBackendProtocolV2 } from 'deepagents';

export async function use(sandbox: Sandbox): Promise<unknown> {
  const session: Session = await SandbarSession.from(sandbox);
  const provider: HarnessV1SandboxProvider = createSandbarSandbox({ sandbox });
  const backend: SandboxBackendProtocolV2 = new SandbarSandbox(sandbox);
  // @ts-expect-error the number of processors is a number
  sandbar({ vcpus: 'two' });
  // @ts-expect-error ports are numbers
  createSandbarSandbox({ ports: ['http'] });
  // @ts-expect-error seconds are a number
  await SandbarSession.create({ commandTimeoutSec: '1' });
  // @ts-expect-error seconds are a number
  await SandbarSandbox.create({ commandTimeoutSec: '1' });
  return [session, provider, backend, await compute({ provider: sandbar() }).sandbox.create()];
}
`;

describe('the packages of the adapters', () => {
  let project: Project;
  let tools: Tools;
  before(async () => {
    tools = await ensureTools();
    project = await installPackages();
    await symlink(tools.nodeTypes, path.join(project.folder, 'node_modules', '@types'));
    for (const name of PEERS) await project.link(name);
  });
  after(() => project?.remove());

  const installed = (name: string) => path.join(project.folder, 'node_modules', '@sandbar', name);
  const start = async (program: string, name: string, text: string) =>
    run(program, [await project.write(name, text)], { cwd: project.folder, env: withoutService(project.folder) });

  it('use the same SDK and peers as the program, on the oldest Node that they support', async () => {
    const [node20] = tools.runtimes;
    const said = await start(node20?.program ?? '', 'adapters.mjs', ADAPTERS_PROGRAM);
    assert.deepEqual(said, { code: 0, stdout: 'true true true\n', stderr: '' });
    // The AI SDK needs Node 22.
    const session = await start(process.execPath, 'ai-sdk.mjs', AI_SDK_PROGRAM);
    assert.deepEqual(session, { code: 0, stdout: 'true\n', stderr: '' });
  });

  describe('with the optional peer', { concurrency: 2 }, () => {
    before(() => project.link(OPTIONAL_PEER));

    it('include the sandbox provider for the harness', async () => {
      const harness = await start(process.execPath, 'harness.mjs', HARNESS_PROGRAM);
      assert.deepEqual(harness, { code: 0, stdout: 'true\n', stderr: '' });
    });

    it('compile together with the examples of their READMEs', async () => {
      await project.write('adapters.ts', ADAPTERS_CONSUMER);
      for (const name of ADAPTERS) await project.write(`${name}.ts`, await readmeExample(installed(name)));
      const compilerOptions = {
        target: 'es2022',
        lib: ['es2024', 'dom'],
        types: ['node'],
        module: 'nodenext',
        strict: true,
        exactOptionalPropertyTypes: true,
        // Do not check the types of the peers, because they belong to other projects.
        skipLibCheck: true,
        noEmit: true,
      };
      const files = ['adapters', ...ADAPTERS].map((name) => `${name}.ts`);
      const settings = await project.write('tsconfig.json', JSON.stringify({ compilerOptions, files }));
      const compiler = path.join(CHECKOUT, 'node_modules', 'typescript', 'bin', 'tsc');
      const said = await run(process.execPath, [compiler, '-p', settings], { cwd: project.folder });
      assert.deepEqual(said, { code: 0, stdout: '', stderr: '' });
    });
  });

  it('include all adapters, and require the Node version and the peers of their workspaces', async () => {
    const folder = path.join(CHECKOUT, 'packages', 'adapters');
    assert.deepEqual((await readdir(folder)).sort(), ADAPTERS.toSorted());
    const fields = async (file: string) => {
      const { engines, peerDependencies, peerDependenciesMeta } = JSON.parse(await readFile(file, 'utf8'));
      return { engines, peerDependencies, peerDependenciesMeta };
    };
    for (const name of ADAPTERS) {
      const promised = await fields(path.join(installed(name), 'package.json'));
      assert.deepEqual(promised, await fields(path.join(folder, name, 'package.json')));
      assert.ok(promised.engines && promised.peerDependencies, name);
    }
  });
});
