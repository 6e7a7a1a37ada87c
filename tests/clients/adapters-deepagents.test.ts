// Tests the backend for deepagents with a real machine: every method of the protocol, and an agent that uses it.
import assert from 'node:assert/strict';
import { after, before, describe, it } from 'node:test';
import { SandbarSandbox } from '@sandbar/deepagents';
import { Client, ConflictError, type NotFoundError, type SandbarError } from '@sandbar/sdk';
import { createDeepAgent, isSandboxBackend, type SandboxBackendProtocolV2 } from 'deepagents';
import { AIMessage, fakeModel, HumanMessage, ToolMessage } from 'langchain';
import { API_KEY, BASE_URL } from '../e2e/support/service.ts';
import { runReadme } from './support/readme.ts';

const client = new Client({ baseUrl: BASE_URL, apiKey: API_KEY });
const SMALL = { client, memoryMb: 256, rootfsSizeGb: 2 };
const BINARY = Uint8Array.from({ length: 70_000 }, (_, at) => (at * 31) % 256);

describe('the backend of deepagents', () => {
  const example = runReadme('packages/adapters/deepagents/README.md');
  let backend: SandbarSandbox;
  before(async () => {
    backend = await SandbarSandbox.create({ ...SMALL, initialFiles: { '/work/deep/first.txt': 'first\n' } });
  });
  after(() => backend.close());

  it('is a sandbox backend with initial files and an expiry', async () => {
    const protocol: SandboxBackendProtocolV2 = backend;
    assert(isSandboxBackend(protocol));
    assert.equal(backend.isRunning, true);
    assert.equal((await backend.execute('cat /work/deep/first.txt')).output, 'first\n');
    const { expires_at, created_at } = await backend.sandbox.info();
    assert.equal(Math.round((Date.parse(expires_at ?? '') - Date.parse(created_at)) / 60_000), 30);
  });

  it('runs commands with exact exit codes, and output in the order in which it was written', async () => {
    const result = await backend.execute('echo 1; echo 2 >&2; echo 3; exit 42');
    assert.deepEqual(result, { output: '1\n2\n3\n', exitCode: 42, truncated: false });
    assert.equal((await backend.execute('kill -9 $$')).exitCode, 137);
    assert.equal((await backend.execute('nonexistent_command_12345')).exitCode, 127);
    const late = await backend.execute('echo so far; sleep 60', { timeoutSec: 1 });
    assert.deepEqual([late.exitCode, late.output], [124, 'so far\n']);
  });

  it('kills a command when its signal is aborted', async () => {
    const abort = new AbortController();
    const running = backend.execute('echo > /tmp/started; exec sleep 98765', { signal: abort.signal });
    await backend.execute('until [ -e /tmp/started ]; do sleep 0.05; done');
    abort.abort(new Error('not needed'));
    await assert.rejects(running, { message: 'not needed' });
    assert.equal((await backend.execute('pgrep -xf "sleep 98765"')).exitCode, 1);
  });

  it('uploads and downloads exact bytes, and reports an error for each file', async () => {
    const uploads = await backend.uploadFiles([
      ['/data/new/binary.bin', BINARY],
      ['/data/empty', new Uint8Array()],
      ['/etc', BINARY],
      ['/etc/passwd/below', BINARY],
      ['relative.txt', BINARY],
    ]);
    assert.deepEqual(uploads, [
      { path: '/data/new/binary.bin', error: null },
      { path: '/data/empty', error: null },
      { path: '/etc', error: 'is_directory' },
      { path: '/etc/passwd/below', error: 'invalid_path' },
      { path: 'relative.txt', error: 'invalid_path' },
    ]);
    const [binary, empty, missing, directory] = await backend.downloadFiles([
      '/data/new/binary.bin',
      '/data/empty',
      '/data/missing',
      '/data/new',
    ]);
    assert.deepEqual(binary?.content, BINARY);
    assert.deepEqual([empty?.content?.length, empty?.error], [0, null]);
    assert.deepEqual(missing, { path: '/data/missing', content: null, error: 'file_not_found' });
    assert.deepEqual(directory, { path: '/data/new', content: null, error: 'is_directory' });
  });

  it('writes, reads, edits and deletes files', async () => {
    const path = "/work/it's a file.py";
    assert.equal((await backend.write(path, 'a = 1\nb = 2\nc = 3\n')).error, undefined);
    const page = await backend.read(path, 1, 1);
    assert.match(String(page.content), /b = 2/);
    assert.doesNotMatch(String(page.content), /a = 1|c = 3/);
    assert.equal((await backend.edit(path, 'b = 2', 'b = 20')).occurrences, 1);
    assert.match((await backend.edit(path, 'missing', 'x')).error ?? '', /not found/i);
    assert.match((await backend.edit(path, ' = ', '=')).error ?? '', /multiple/i);
    assert.equal((await backend.edit(path, ' = ', '=', true)).occurrences, 3);
    const { data } = await backend.readRaw(path);
    assert.equal(data?.content, 'a=1\nb=20\nc=3\n');
    await backend.uploadFiles([['/work/picture.png', BINARY]]);
    assert.deepEqual((await backend.read('/work/picture.png')).content, BINARY);
    assert.equal((await backend.delete(path)).path, path);
    assert.match((await backend.delete(path)).error ?? '', /not found/);
    assert.match((await backend.read(path)).error ?? '', /not found/);
  });

  it('lists and searches', async () => {
    await backend.uploadFiles(
      ['/tree/one.py', '/tree/two.txt', '/tree/below/three.py'].map((path) => [
        path,
        Buffer.from(`needle in ${path}\n`),
      ]),
    );
    const names = (files: { path: string }[] = []) => files.map(({ path }) => path).sort();
    assert.deepEqual(names((await backend.ls('/tree')).files), ['/tree/below/', '/tree/one.py', '/tree/two.txt']);
    assert.deepEqual(names((await backend.glob('**/*.py', '/tree')).files), ['below/three.py', 'one.py']);
    assert.deepEqual(names((await backend.glob('*.py', '/tree')).files), ['one.py']);
    const { matches = [] } = await backend.grep('needle', '/tree', '*.py');
    assert.deepEqual(names(matches), ['/tree/below/three.py', '/tree/one.py']);
    assert.deepEqual(matches[0]?.line, 1);
    assert.deepEqual((await backend.grep('needle.in', '/tree')).matches, []);
    assert.equal((await backend.grep('needle', '/tree', null, 2)).truncated, true);
  });

  it('runs the commands and writes the files of an agent', async () => {
    const model = fakeModel()
      .respondWithTools([{ name: 'write_file', args: { file_path: '/agent/in.txt', content: 'hello' }, id: '1' }])
      .respondWithTools([{ name: 'execute', args: { command: 'tr a-z A-Z < /agent/in.txt; exit 7' }, id: '2' }])
      .respond(new AIMessage('done'));
    const agent = createDeepAgent({ model, backend });
    const { messages } = await agent.invoke({ messages: [new HumanMessage('go')] });
    const answers = messages.filter((message) => ToolMessage.isInstance(message)).map(({ text }) => text);
    assert.match(answers.at(-1) ?? '', /HELLO[\s\S]*exit code 7/);
    assert.equal((await backend.sandbox.files.readText('/agent/in.txt')).trim(), 'hello');
  });

  it('throws when the machine is stopped, and destroys it on close', async () => {
    await using short = await SandbarSandbox.create(SMALL);
    await short.sandbox.stop();
    await assert.rejects(short.execute('true'), ConflictError);
    await assert.rejects(short.downloadFiles(['/etc/passwd']), ConflictError);
    await assert.rejects(short.uploadFiles([['/x', BINARY]]), ConflictError);
    await short.close();
    assert.equal(short.isRunning, false);
    assert.equal((await short.sandbox.info()).state, 'destroyed');
    const isGone = (error: SandbarError): error is NotFoundError | ConflictError => [404, 409].includes(error.status);
    await assert.rejects(short.execute('true'), isGone);
    await assert.rejects(short.downloadFiles(['/etc/passwd']), isGone);
    await assert.rejects(SandbarSandbox.connect(short.id, { client }), isGone);
  });

  it('has a README whose example runs', async () => {
    await example;
  });
});
