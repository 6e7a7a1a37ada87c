// Tests `sandbar api` against a small HTTP server that stands in for the API.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { type Call, CLI, environment, makeFolder, run, startServer } from './test-support.ts';

const folder = makeFolder();
let calls: Call[] = [];
let answer: { status: number; headers: Record<string, string>; body: string | Buffer };

const baseUrl = await startServer((call, response) => {
  calls.push(call);
  response.writeHead(answer.status, answer.headers).end(answer.body);
});

beforeEach(() => {
  calls = [];
  answer = { status: 200, headers: { 'content-type': 'application/json' }, body: '{"b": 1,\n "a":2}' };
});

const env = environment({ SANDBAR_BASE_URL: baseUrl, SANDBAR_API_KEY: 'sbr_key' });
const api = (args: string[], input?: string) => run(process.execPath, [CLI, 'api', ...args], env, input);
/** Runs the command in a pseudo-terminal, and returns what the terminal shows. */
const apiOnTerminal = async (args: string): Promise<string> => {
  const command = `${process.execPath} ${CLI} api ${args}`;
  const { stdout } = await run('script', ['-qec', command, '/dev/null'], env);
  return stdout.toString().replaceAll('\r\n', '\n');
};

describe('sandbar api', () => {
  it('sends the key and prints the body unchanged', async () => {
    const { code, stdout, stderr } = await api(['get', '/v1/machines?a=1', '--query', 'name=a b&c', '--query', 'x=']);
    assert.deepEqual([code, stdout.toString(), stderr], [0, answer.body, '']);
    const { method, url, headers } = calls[0] ?? assert.fail('no request');
    assert.deepEqual([method, url], ['GET', '/v1/machines?a=1&name=a+b%26c&x=']);
    assert.equal(headers.authorization, 'Bearer sbr_key');
    assert.match(headers['user-agent'] ?? '', /^sandbar-cli\//);
  });

  it('never prints the key, even when no header can carry it', async () => {
    for (const [key, header, expected] of [
      ['sbr_secret\nrest', 'x: y', 4],
      ['sbr_\u20acsecret', 'x: y', 4],
      ['sbr_key', 'authorization: Bearer sbr_secret\nrest', 2],
    ] as const) {
      const args = [CLI, 'api', 'GET', '/v1/x', '--header', header];
      const { code, stdout, stderr } = await run(process.execPath, args, { ...env, SANDBAR_API_KEY: key });
      assert.deepEqual([code, stdout.toString()], [expected, '']);
      assert.match(stderr, /^sandbar: .*\n$/);
      assert.doesNotMatch(stderr, /secret|rest/);
    }
    assert.equal(calls.length, 0);
  });

  it('prints bytes that are not text unchanged', async () => {
    answer.body = Buffer.from(Array.from({ length: 256 }, (_, index) => index));
    answer.headers = { 'content-type': 'application/octet-stream' };
    assert.deepEqual((await api(['GET', '/v1/x'])).stdout, answer.body);
  });

  it('sends a body from the command line, a file and the standard input', async () => {
    const file = path.join(folder, 'body.json');
    writeFileSync(file, '{"of": "file"}');
    await api(['POST', '/v1/x', '--data', '{"of": "line"}']);
    await api(['PATCH', '/v1/x', '--data', `@${file}`]);
    await api(['PUT', '/v1/x', '--header', 'Content-Type: text/plain', '--data', '-'], 'of input');
    assert.deepEqual(
      calls.map(({ method, headers, body }) => [method, headers['content-type'], body.toString()]),
      [
        ['POST', 'application/json', '{"of": "line"}'],
        ['PATCH', 'application/json', '{"of": "file"}'],
        ['PUT', 'text/plain', 'of input'],
      ],
    );
  });

  it('prints an error of the service to stdout, and the exit code is not 0', async () => {
    answer.status = 404;
    answer.body = '{"code":"not_found","detail":"no such machine"}';
    const { code, stdout, stderr } = await api(['GET', '/v1/machines/x']);
    assert.deepEqual([stdout.toString(), stderr], [answer.body, '']);
    assert.notEqual(code, 0);
    assert.notEqual(code, 2);
    assert.equal(calls.length, 1, 'it is not sent again');
  });

  it('does not follow a redirection, which would send the key elsewhere', async () => {
    answer = { status: 302, headers: { location: '/elsewhere' }, body: 'moved' };
    const { code, stdout } = await api(['GET', '/v1/x']);
    assert.deepEqual([code, stdout.toString(), calls.length], [0, 'moved', 1]);
  });

  it('-i prints the status and the headers first', async () => {
    answer.headers['x-request-id'] = 'r1';
    const { stdout } = await api(['GET', '/v1/x', '-i']);
    assert.match(
      stdout.toString(),
      /^HTTP\/1.1 200 OK\n(.+: .+\n)*x-request-id: r1\n(.+: .+\n)*\n\{"b": 1,\n "a":2\}$/,
    );
  });

  it('on a terminal it indents JSON and escapes control characters', async () => {
    answer.body = JSON.stringify({ name: 'a\u009b2J\u202eb' });
    assert.equal(await apiOnTerminal('GET /v1/x'), '{\n  "name": "a\\u009b2J\\u202eb"\n}\n');
    answer.body = 'not JSON';
    assert.equal(await apiOnTerminal('GET /v1/x'), 'not JSON\n');
  });

  it('refuses arguments that make no valid request, and sends nothing', async () => {
    for (const wrong of [
      ['GET'],
      ['GET', 'v1/x'],
      ['GET', `${baseUrl}/v1/x`],
      ['GET', '/v1/x', '--data', '{}'],
      ['GET', '/v1/x', '--query', 'a'],
      ['GET', '/v1/x', '--header', 'a b: c'],
      ['POST', '/v1/x', '--data', '@/nowhere/file'],
    ]) {
      const { code, stderr } = await api(wrong);
      assert.equal(code, 2, wrong.join(' '));
      assert.match(stderr, /^sandbar: .+\n$/);
    }
    assert.deepEqual(calls, []);
  });

  it('says when the service does not answer', async () => {
    const away = environment({ SANDBAR_BASE_URL: 'http://127.0.0.1:1', SANDBAR_API_KEY: 'k' });
    const { code, stderr } = await run(process.execPath, [CLI, 'api', 'GET', '/v1/x'], away);
    assert.equal(code, 1);
    assert.match(stderr, /^sandbar: the service does not answer at http:\/\/127.0.0.1:1 .*\n$/);
  });
});
