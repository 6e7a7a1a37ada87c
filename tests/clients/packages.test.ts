// Tests the packages with the running service, in the form in which they are published. They are installed in an empty
// project. Tests the example of the README and a longer program on every runtime, and the command line.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Machine } from '@sandbar/contract/machine.ts';
import { createMachine, destroyMachine } from '../e2e/support/service.ts';
import { CHECKOUT } from '../packages/support/prepared.ts';
import { installPackages, type Project, readmeExample } from '../packages/support/project.ts';
import { run } from '../packages/support/run.ts';
import { ensureTools, type Runtime, type Tools } from '../packages/support/tools.ts';

/** A program that uses most of the SDK and prints the results, which the test compares with `PRINTED`. */
const PROGRAM = `
import { Readable } from 'node:stream';
import { text } from 'node:stream/consumers';
import { NotFoundError, Sandbox } from '@sandbar/sdk';

const sandbox = await Sandbox.create({ memoryMb: 256, rootfsSizeGb: 2, expiresInSec: 600 });
try {
  const { exitCode, stdout, stderr } = await sandbox.exec('cat; echo wrong >&2; exit 3', { stdin: 'typed' });
  await sandbox.files.write('/root/in', Readable.from([Buffer.from('from '), Buffer.from('a stream')]));
  const file = await sandbox.files.readText('/root/in');
  const missing = await sandbox.files.read('/none').catch((error) => error instanceof NotFoundError);
  const job = await sandbox.start(['sh', '-c', 'echo "$WHAT"; cat'], { env: { WHAT: 'job' }, stdinOpen: true });
  await job.stdin.write('and its input');
  await job.stdin.close();
  let output = '';
  for await (const { data } of job.output()) output += Buffer.from(data).toString();
  const { exitCode: jobExit } = await job.result();
  const terminal = await sandbox.terminal({ command: ['sh', '-c', 'read line; echo "got $line"; exit 4'] });
  await terminal.write('a line\\n');
  let screen = '';
  for await (const data of terminal) screen += Buffer.from(data).toString();
  const exit = await terminal.exit;
  await sandbox.start(['python3', '-c', 'import socket; s = socket.create_server(("127.0.0.1", 8000)); c = s.accept()[0]; c.sendall(c.recv(9).upper()); c.close()'], { cwd: '/' });
  while (!(await sandbox.ports.list()).some(({ port }) => port === 8000)) await new Promise((resolve) => setTimeout(resolve, 100));
  const connection = await sandbox.ports.connect(8000);
  connection.end('hello');
  const answer = await text(connection);
  console.log(JSON.stringify({ exitCode, stdout, stderr, file, missing, output, jobExit, hasLine: screen.includes('got a line'), terminalExit: exit?.code, answer }));
} finally {
  await sandbox.destroy();
}
`;
const PRINTED = {
  exitCode: 3,
  stdout: 'typed',
  stderr: 'wrong\n',
  file: 'from a stream',
  missing: true,
  output: 'job\nand its input',
  jobExit: 0,
  hasLine: true,
  terminalExit: 4,
  answer: 'HELLO',
};

describe('the packages for npm, with the service', () => {
  let project: Project;
  let tools: Tools;
  before(async () => {
    tools = await ensureTools();
    project = await installPackages();
    const example = await readmeExample(path.join(project.folder, 'node_modules/@sandbar/sdk'));
    const source = await project.write('readme.ts', example);
    // For Node 20, which has neither types nor `await using`.
    const compiler = path.join(CHECKOUT, 'node_modules', 'typescript', 'bin', 'tsc');
    const args = [
      compiler,
      source,
      '--ignoreConfig',
      '--target',
      'es2022',
      '--module',
      'nodenext',
      '--outDir',
      'built',
    ];
    const types = ['--typeRoots', tools.nodeTypes, '--types', 'node', '--skipLibCheck'];
    const said = await run(process.execPath, [...args, ...types], { cwd: project.folder });
    assert.equal(said.code, 0, said.stdout);
    await project.write('program.mjs', PROGRAM);
  });
  after(() => project?.remove());

  const start = ({ program, args }: Runtime, file: string) => run(program, [...args, file], { cwd: project.folder });

  // The tests can run at the same time, because each test has its own machine.
  describe('the SDK', { concurrency: 2 }, () => {
    for (const name of ['Node 20', 'Node 24', 'Deno', 'Bun'] as const) {
      const find = () => tools.runtimes.find((runtime) => runtime.name === name) ?? assert.fail(name);

      it(`runs the example of the README on ${name}`, async () => {
        const runtime = find();
        const said = await start(runtime, runtime.runsTypeScript ? 'readme.ts' : 'built/readme.js');
        assert.equal(said.code, 0, said.stderr);
        assert.match(said.stdout, /^0 42\n\na,1\nb,2\nhttps?:\/\/\S+\n$/);
      });

      it(`has commands, files, jobs, a terminal and a connection to a port on ${name}`, async () => {
        const said = await start(find(), 'program.mjs');
        assert.equal(said.code, 0, said.stderr);
        assert.deepEqual(JSON.parse(said.stdout), PRINTED);
      });
    }
  });

  it('npx sandbar lists machines and runs a command in a new machine, on Node 20', async () => {
    const [node20] = tools.runtimes;
    const env = { npm_config_loglevel: 'error', PATH: `${path.dirname(node20?.program ?? '')}:${process.env.PATH}` };
    const npx = (...args: string[]) => run('npx', ['--no-install', 'sandbar', ...args], { cwd: project.folder, env });
    // Other test files create machines in the same account at the same time, so look only for a machine of this test.
    const { id } = await createMachine();
    try {
      const listed = await npx('machines', '--json');
      assert.equal(listed.code, 0, listed.stderr);
      const { machines }: { machines: Machine[] } = JSON.parse(listed.stdout);
      assert.ok(machines.some((machine) => machine.id === id));
    } finally {
      await destroyMachine(id);
    }
    assert.deepEqual(await npx('run', '--memory', '256', '--', 'true'), { code: 0, stdout: '', stderr: '' });
    const account = await npx('admin', 'account', 'list');
    assert.equal(account.code, 0, account.stderr);
  });
});
