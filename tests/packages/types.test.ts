// Tests that programs compile with the types of the SDK: with the oldest and the newest compiler, with every mode of
// module resolution, and with the types of Node or of browsers.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { symlink } from 'node:fs/promises';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import { CHECKOUT } from './support/prepared.ts';
import { installPackages, type Project, readmeExample } from './support/project.ts';
import { run } from './support/run.ts';
import { ensureTools, type Tools } from './support/tools.ts';

/** A program that does not compile when a type is missing or is `any`. */
const CONSUMER = `
import { Client, ExecResult, QuotaExceededError, Sandbox, SandbarError } from '@sandbar/sdk';
import type { Content, Machine, PortConnection, SandboxOptions } from '@sandbar/sdk';

export async function use(sandbox: Sandbox, options: SandboxOptions): Promise<string> {
  const result: ExecResult = await sandbox.exec(['ls'], { timeoutSec: 1 });
  const machine: Machine = await sandbox.info();
  const state: 'pending' | 'provisioning' | 'running' | 'stopped' | 'error' | 'destroyed' = machine.state;
  const [first] = await new Client({ apiKey: 'k' }).machines.list({ state: 'running' });
  const content: Content = 'text';
  await sandbox.files.write('/a', content);
  for await (const { stream, data } of (await sandbox.start('ls')).output()) {
    const name: 'stdout' | 'stderr' = stream;
    const bytes: Uint8Array = data;
    void [name, bytes];
  }
  const connection: PortConnection = await sandbox.ports.connect(80);
  connection.destroy();
  await (await Sandbox.create(options))[Symbol.asyncDispose]();
  const error: SandbarError = new QuotaExceededError({ status: 403, code: 'quota_exceeded', detail: '', requestId: null, retryAfterSec: null });
  // @ts-expect-error the number of processors is a number
  await Sandbox.create({ vcpus: 'two' });
  // @ts-expect-error no such field
  void machine.nothing;
  // @ts-expect-error no such state
  await new Client().machines.list({ state: 'asleep' });
  return [state, first?.id, result.stdout, error.detail].join();
}
`;
/** A program that compiles only if a connection to a port has the type of a Node stream. */
const NODE_CONSUMER = `
import { pipeline } from 'node:stream/promises';
import type { Sandbox } from '@sandbar/sdk';
export const copy = async (sandbox: Sandbox) => {
  const connection = await sandbox.ports.connect(80);
  await pipeline(process.stdin, connection, process.stdout);
  process.stdin.pipe(connection).end();
};
`;

/** Compiler settings of a program for browsers, without the types of Node. */
const BROWSER = { lib: ['es2022', 'dom', 'dom.iterable', 'dom.asynciterable'], types: [], files: ['consumer.ts'] };
type Way = { compiler: 'old' | 'newest'; module: string; moduleResolution: string; files?: string[] };
/** The compiler settings to test. `compile` adds those that all programs share. */
const WAYS: readonly [string, Way][] = [
  ['TypeScript 5.5 and node16', { compiler: 'old', module: 'node16', moduleResolution: 'node16' }],
  ['the newest TypeScript and nodenext', { compiler: 'newest', module: 'nodenext', moduleResolution: 'nodenext' }],
  ['the newest TypeScript and bundler', { compiler: 'newest', module: 'esnext', moduleResolution: 'bundler' }],
  [
    'TypeScript 5.5 and bundler, for browsers',
    { compiler: 'old', module: 'esnext', moduleResolution: 'bundler', ...BROWSER },
  ],
];
const NEWEST = path.join(CHECKOUT, 'node_modules', 'typescript', 'bin', 'tsc');

/** The records of the API that the SDK exports, by the module of the contract. */
const RECORDS: Readonly<Record<string, readonly string[]>> = {
  account: ['Account'],
  activity: ['ActivityEntry'],
  'api-key': ['ApiKey', 'ApiKeyCreate', 'NewApiKey'],
  billing: ['LedgerDetails', 'LedgerEntry', 'LedgerList', 'Usage'],
  exec: ['Exec', 'ExecCreate', 'ExecOutput'],
  file: ['FileEntry', 'FileEvent', 'FileUnpacked'],
  image: ['Image'],
  machine: ['Machine', 'MachineCreate', 'MachineUpdate'],
  port: ['Port', 'PortToken'],
  quota: ['Quotas'],
  snapshot: ['Snapshot', 'SnapshotCreate'],
  terminal: ['Terminal'],
  volume: ['Volume', 'VolumeAttach', 'VolumeCreate'],
};

describe('the types of the SDK', { concurrency: 2 }, () => {
  let project: Project;
  let tools: Tools;
  before(async () => {
    tools = await ensureTools();
    project = await installPackages();
    await symlink(tools.nodeTypes, path.join(project.folder, 'node_modules', '@types'));
    await project.write('consumer.ts', CONSUMER);
    await project.write('node-consumer.ts', NODE_CONSUMER);
    await project.write('readme.ts', await readmeExample(path.join(project.folder, 'node_modules/@sandbar/sdk')));
  });
  after(() => project?.remove());

  async function compile(compiler: string, settings: object, files: readonly string[]): Promise<string> {
    const compilerOptions = {
      target: 'es2022',
      lib: ['es2022'],
      types: ['node'],
      strict: true,
      exactOptionalPropertyTypes: true,
      // Check the types of the packages, but not those of the compiler, because that takes long.
      skipLibCheck: false,
      skipDefaultLibCheck: true,
      noEmit: true,
      ...settings,
    };
    const file = await project.write(`${randomUUID()}.json`, JSON.stringify({ compilerOptions, files }));
    const { code, stdout, stderr } = await run(process.execPath, [compiler, '-p', file], { cwd: project.folder });
    return code === 0 ? '' : `${stdout}${stderr}`;
  }

  for (const [way, { compiler, files = ['consumer.ts', 'node-consumer.ts', 'readme.ts'], ...settings }] of WAYS) {
    it(`compile with ${way}`, async () => {
      assert.equal(await compile(compiler === 'old' ? tools.oldCompiler : NEWEST, settings, files), '');
    });
  }

  it('are equal to the types of the contract, although the build rewrites them', async () => {
    const checks = Object.entries(RECORDS).flatMap(([module, names]) =>
      names.map((name) =>
        `same<contract.${name}, sdk.${name}>(true);`.replace('contract', module.replaceAll('-', '_')),
      ),
    );
    const imports = Object.keys(RECORDS).map(
      (module) => `import type * as ${module.replaceAll('-', '_')} from '@sandbar/contract/${module}.ts';`,
    );
    await project.write(
      'contract.ts',
      `${imports.join('\n')}
import type * as sdk from '@sandbar/sdk';
type Same<A, B> = [A] extends [B] ? ([B] extends [A] ? ([keyof A, keyof B] extends [keyof B, keyof A] ? true : false) : false) : false;
function same<A, B>(_: Same<A, B>): void {}
${checks.join('\n')}`,
    );
    const settings = {
      module: 'nodenext',
      lib: ['es2024'],
      allowImportingTsExtensions: true,
      skipLibCheck: true,
      paths: { '@sandbar/contract/*': [path.join(CHECKOUT, 'packages/contract/src/*')] },
    };
    assert.equal(await compile(NEWEST, settings, ['contract.ts']), '');
  });
});
