// Tests the sandbox session for the AI SDK, and the sandbox provider for its harness, with real machines.
import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { after, before, describe, it } from 'node:test';
import {
  HarnessCapabilityUnsupportedError,
  HarnessSandboxAuthenticationError,
  type HarnessV1NetworkSandboxSession,
  type HarnessV1SandboxProvider,
} from '@ai-sdk/harness';
import { SandbarSession } from '@sandbar/ai-sdk';
import { createSandbarSandbox } from '@sandbar/ai-sdk/harness';
import { Client, NotFoundError } from '@sandbar/sdk';
import { type Experimental_SandboxSession, generateText, isStepCount, jsonSchema, tool } from 'ai';
import { MockLanguageModelV4 } from 'ai/test';
import { API_KEY, BASE_URL } from '../e2e/support/service.ts';
import { openUrl, textAt } from './support/open-url.ts';
import { runReadme } from './support/readme.ts';

const client = new Client({ baseUrl: BASE_URL, apiKey: API_KEY });
const SMALL = { client, memoryMb: 256, rootfsSizeGb: 2 };
const BINARY = Uint8Array.from({ length: 3_000_000 }, (_, at) => (at * 31) % 256);

const example = runReadme('packages/adapters/ai-sdk/README.md');
let machine: SandbarSession;
before(async () => {
  machine = await SandbarSession.create({ ...SMALL, workingDirectory: '/work/base', commandTimeoutSec: 2 });
});
after(() => machine.destroy());

describe('the sandbox session of the AI SDK', () => {
  let session: Experimental_SandboxSession;
  before(() => {
    session = machine;
  });

  it('runs commands with exact exit codes, in the working directory', async () => {
    const run = await session.run({ command: 'pwd; echo "$NAME" >&2; exit 3', env: { NAME: 'you' } });
    assert.deepEqual(run, { exitCode: 3, stdout: '/work/base\n', stderr: 'you\n' });
    assert.equal((await session.run({ command: 'pwd', workingDirectory: '..' })).stdout, '/work\n');
    assert.equal((await session.run({ command: 'kill -9 $$' })).exitCode, 137);
    assert.equal((await session.run({ command: 'sleep 60' })).exitCode, 124);
    assert.match(session.description, /\/work\/base/);
  });

  it('kills a command on an abort and throws the reason', async () => {
    const abort = new AbortController();
    const { signal: abortSignal } = abort;
    const longer = await SandbarSession.from(machine.sandbox);
    assert.equal((await longer.run({ command: 'echo fine', abortSignal })).stdout, 'fine\n');
    const running = longer.run({ command: 'exec sleep 98765', abortSignal });
    const process = await longer.spawn({ command: 'exec sleep 87654', abortSignal });
    const ended = process.wait();
    await longer.run({ command: 'until pgrep -xf "sleep 98765" && pgrep -xf "sleep 87654"; do sleep 0.05; done' });
    const reason = new Error('not needed');
    abort.abort(reason);
    const results = await Promise.allSettled([running, ended]);
    assert.deepEqual(results, [
      { status: 'rejected', reason },
      { status: 'rejected', reason },
    ]);
    assert.equal((await longer.run({ command: 'pgrep -xf "sleep (98765|87654)"' })).exitCode, 1);
    await assert.rejects(async () => longer.run({ command: 'true', abortSignal }), reason);
  });

  it('spawns a process with byte streams for its output, and for stdin on request', async () => {
    const process = await session.spawn({ command: 'cat; echo end >&2; exit 4', stdin: true });
    const writer = process.stdin.getWriter();
    const stdout = process.stdout.getReader();
    await writer.write(Buffer.from('first'));
    assert.equal(Buffer.from((await stdout.read()).value ?? []).toString(), 'first');
    await writer.write(BINARY.subarray(0, 300_000));
    await writer.close();
    stdout.releaseLock();
    const rest: Uint8Array[] = [];
    for await (const chunk of process.stdout) rest.push(chunk);
    assert.deepEqual(Buffer.concat(rest), Buffer.from(BINARY.subarray(0, 300_000)));
    assert.equal((await bytesOf(process.stderr)).toString(), 'end\n');
    assert.deepEqual(await process.wait(), { exitCode: 4 });
    await process.kill();
    const silent = await session.spawn({ command: 'cat' });
    assert(!('stdin' in silent));
    assert.deepEqual(await silent.wait(), { exitCode: 0 });
  });

  it('kills a process, and lets a consumer stop reading', async () => {
    const process = await session.spawn({ command: 'echo ready; exec sleep 1000' });
    for await (const chunk of process.stdout) {
      assert.equal(Buffer.from(chunk).toString(), 'ready\n');
      break;
    }
    await process.kill();
    assert.deepEqual(await process.wait(), { exitCode: 143 });
  });

  it('writes and reads text, bytes and streams', async () => {
    await session.writeTextFile({ path: 'new/text.txt', content: 'one\ntwo\nthree' });
    assert.equal(
      await session.readTextFile({ path: '/work/base/new/text.txt', startLine: 2, endLine: 9 }),
      'two\nthree',
    );
    await session.writeTextFile({ path: 'latin', content: 'ä', encoding: 'latin1' });
    assert.deepEqual(await session.readBinaryFile({ path: 'latin' }), Uint8Array.of(0xe4));
    assert.equal(await session.readTextFile({ path: 'latin', encoding: 'latin1' }), 'ä');
    await session.writeBinaryFile({ path: 'binary', content: BINARY });
    const stream = await session.readFile({ path: 'binary' });
    await session.writeFile({ path: 'copy', content: stream ?? assert.fail('no stream') });
    assert.deepEqual(await session.readBinaryFile({ path: 'copy' }), BINARY);
    await session.writeBinaryFile({ path: 'empty', content: new Uint8Array() });
    assert.equal((await bytesOf((await session.readFile({ path: 'empty' })) ?? assert.fail('no stream'))).length, 0);
    const missing = { path: 'missing' };
    assert.deepEqual(
      [await session.readFile(missing), await session.readBinaryFile(missing), await session.readTextFile(missing)],
      [null, null, null],
    );
    await assert.rejects(async () => session.writeTextFile({ path: 'new', content: '' }));
  });

  it('describes, lists and deletes files', async () => {
    const command =
      'mkdir d; printf 12345 > d/f; ln -s f d/link; ln -s nowhere d/broken; ln -s . d/self; mkfifo d/pipe';
    await session.run({ command });
    const types = Object.fromEntries(
      ((await session.listDirectory({ path: 'd' })) ?? []).map(({ name, type }) => [name, type]),
    );
    assert.deepEqual(types, { f: 'file', link: 'symlink', broken: 'symlink', self: 'symlink', pipe: 'other' });
    assert.deepEqual(await session.stat({ path: 'd/f' }), { type: 'file', size: 5 });
    assert.deepEqual(await session.stat({ path: 'd/link' }), { type: 'file', size: 5 });
    assert.equal((await session.stat({ path: 'd/self' }))?.type, 'directory');
    assert.equal((await session.stat({ path: 'd/pipe' }))?.type, 'other');
    assert.deepEqual([await session.stat({ path: 'd/broken' }), await session.stat({ path: 'x' })], [null, null]);
    assert.equal(await session.listDirectory({ path: 'x' }), null);
    await assert.rejects(async () => session.listDirectory({ path: 'd/f' }));
    assert.deepEqual(
      [await session.deleteFile({ path: 'd/link' }), await session.deleteFile({ path: 'd/link' })],
      [true, false],
    );
    assert.equal((await session.stat({ path: 'd/f' }))?.size, 5);
    await assert.rejects(async () => session.deleteFile({ path: 'd' }));
  });

  it('runs the command of a tool of generateText', async () => {
    const shell = tool({
      inputSchema: jsonSchema<{ command: string }>({ type: 'object', properties: { command: { type: 'string' } } }),
      execute: async ({ command }, { experimental_sandbox, abortSignal }) =>
        (experimental_sandbox ?? assert.fail('no sandbox')).run({ command, ...(abortSignal ? { abortSignal } : {}) }),
    });
    const input = JSON.stringify({ command: 'echo $((6 * 7)); exit 9' });
    const usage = {
      inputTokens: { total: 1, noCache: 1, cacheRead: 0, cacheWrite: 0 },
      outputTokens: { total: 1, text: 1, reasoning: 0 },
    };
    const model = new MockLanguageModelV4({
      doGenerate: [
        {
          content: [{ type: 'tool-call', toolCallId: '1', toolName: 'shell', input }],
          finishReason: { unified: 'tool-calls', raw: undefined },
          usage,
          warnings: [],
        },
        {
          content: [{ type: 'text', text: 'done' }],
          finishReason: { unified: 'stop', raw: undefined },
          usage,
          warnings: [],
        },
      ],
    });
    const options = { model, tools: { shell }, prompt: 'go', stopWhen: isStepCount(2) };
    const { steps } = await generateText({ ...options, experimental_sandbox: session });
    assert.deepEqual(steps[0]?.toolResults[0]?.output, { exitCode: 9, stdout: '42\n', stderr: '' });
  });
});

describe('the sandbox provider of the AI SDK harness', () => {
  const provider: HarnessV1SandboxProvider = createSandbarSandbox({ ...SMALL, ports: [8000] });
  const sessionId = randomUUID();
  let session: HarnessV1NetworkSandboxSession;
  before(async () => {
    session = await provider.createSession({
      sessionId,
      onFirstCreate: async (fresh) => {
        await fresh.run({ command: 'echo prepared > prepared' });
      },
    });
  });
  after(() => session.destroy());

  it('creates a machine, prepares it and gives it an expiry', async () => {
    assert.equal(session.defaultWorkingDirectory, '/root');
    assert.equal(await session.readTextFile({ path: 'prepared' }), 'prepared\n');
    const { expires_at, created_at } = await client.machines.get(session.id);
    assert.equal(Math.round((Date.parse(expires_at ?? '') - Date.parse(created_at)) / 60_000), 30);
    const restricted = session.restricted();
    assert(!('destroy' in restricted || 'stop' in restricted || 'sandbox' in restricted));
    assert.equal((await restricted.run({ command: 'echo same' })).stdout, 'same\n');
  });

  it('gives addresses of exposed ports only', async () => {
    await session.spawn({ command: 'exec python3 -m http.server 8000' });
    const { url, headers = {} } = await session.getPortEndpoint({ port: 8000 });
    assert.equal(await textAt(`${url}prepared`, headers), 'prepared\n');
    assert.equal((await openUrl(`${url}prepared`)).status, 401);
    assert.equal((await openUrl(await session.getPortUrl({ port: 8000 }))).cookies.length, 1);
    assert.match((await session.getPortEndpoint({ port: 8000, protocol: 'ws' })).url, /^ws:/);
    await assert.rejects(async () => session.getPortEndpoint({ port: 8001 }), HarnessCapabilityUnsupportedError);
    await session.setPorts?.([8001]);
    assert.deepEqual(session.ports, [8001]);
    await assert.rejects(async () => session.getPortEndpoint({ port: 8000 }), HarnessCapabilityUnsupportedError);
  });

  it('stops a machine, starts it again when its session is resumed, and destroys it', async () => {
    await session.stop();
    await session.stop();
    assert.equal((await client.machines.get(session.id)).state, 'stopped');
    const resumed = (await provider.resumeSession?.({ sessionId })) ?? assert.fail('no session');
    assert.equal(resumed.id, session.id);
    assert.equal(await resumed.readTextFile({ path: 'prepared' }), 'prepared\n');
    await resumed.destroy();
    await resumed.destroy();
    assert.equal((await client.machines.get(session.id)).state, 'destroyed');
    await assert.rejects(async () => provider.resumeSession?.({ sessionId }), NotFoundError);
  });

  it('leaves no machine when its preparation fails', async () => {
    let id = '';
    const failure = new Error('not prepared');
    const onFirstCreate = async (fresh: Experimental_SandboxSession | { description: string }) => {
      id = /id ([\w-]+)/.exec(fresh.description)?.[1] ?? '';
      throw failure;
    };
    await assert.rejects(async () => provider.createSession({ onFirstCreate }), failure);
    assert.equal((await client.machines.get(id)).state, 'destroyed');
  });

  it('neither stops nor destroys a machine that the caller gave', async () => {
    const wrapped = await createSandbarSandbox({ sandbox: machine.sandbox }).createSession();
    await wrapped.stop();
    await wrapped.destroy();
    assert.equal((await machine.run({ command: 'echo here' })).stdout, 'here\n');
  });

  it('throws the authentication error of the harness when credentials are refused', async () => {
    const stranger = createSandbarSandbox({ baseUrl: BASE_URL, apiKey: 'sb_wrong' });
    await assert.rejects(async () => stranger.createSession(), HarnessSandboxAuthenticationError);
  });

  it('has a README whose example runs', async () => {
    await example;
  });
});

async function bytesOf(stream: ReadableStream<Uint8Array>): Promise<Buffer> {
  return Buffer.from(await new Response(stream).arrayBuffer());
}
