// Tests `sandbar cp` and `sandbar files` as a user runs them, against a small HTTP server whose machine `m` is a folder of
// this computer.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import {
  chmodSync,
  createReadStream,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { after, before, beforeEach, describe, it } from 'node:test';
import { create, extract } from 'tar';
import { block, archive as tarArchive } from '../../host-agent/tests/support/tar-blocks.ts';

const CLI = new URL('../bin/sandbar.mjs', import.meta.url).pathname;
const MACHINE = '019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20';

let server: Server;
let baseUrl: string;
/** The root directory of the machine. */
let root: string;
/** A folder of the user. */
let home: string;
let calls: string[];
/** If set, the server breaks the next download after this many bytes. */
let breakAt: number | undefined;
/** If set, the server sends this instead of the archive of a folder. */
let archive: Buffer | undefined;

before(async () => {
  server = createServer((request, response) => void serve(request, response)).listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  baseUrl = `http://127.0.0.1:${address.port}`;
});
after(() => {
  server.closeAllConnections();
  server.close();
  for (const folder of [root, home]) rmSync(folder, { recursive: true, force: true });
});
beforeEach(() => {
  for (const folder of [root, home]) if (folder) rmSync(folder, { recursive: true, force: true });
  root = mkdtempSync(join(tmpdir(), 'sandbar-cli-machine-'));
  home = mkdtempSync(join(tmpdir(), 'sandbar-cli-home-'));
  calls = [];
  breakAt = undefined;
  archive = undefined;
});

const inMachine = (path: string) => join(root, path);

function entryOf(path: string) {
  const info = lstatSync(inMachine(path));
  const type = info.isDirectory() ? 'directory' : info.isSymbolicLink() ? 'symlink' : 'file';
  const mode = (info.mode & 0o7777).toString(8).padStart(4, '0');
  const entry = {
    path,
    name: basename(path),
    type,
    size: info.size,
    mode,
    user: 'root',
    group: 'root',
    modified_at: 't',
  };
  return type === 'symlink' ? { ...entry, target: readlinkSync(inMachine(path)) } : entry;
}

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '', 'http://x');
  const operation = url.pathname.replace(`/v1/machines/${MACHINE}/files`, '');
  const path = url.searchParams.get('path') ?? '';
  url.searchParams.delete('path');
  const query = url.searchParams.toString();
  calls.push(`${request.method} ${operation} ${path}${query === '' ? '' : ` ${query}`}`);
  const answer = (status: number, body: object) =>
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body));
  try {
    switch (`${request.method} ${operation}`) {
      case 'GET /entry':
        return void answer(200, entryOf(path));
      case 'GET ':
        return void answer(200, {
          entries: readdirSync(inMachine(path)).map((name) => entryOf(join(path, name))),
          next_cursor: '',
        });
      case 'DELETE ':
        rmSync(inMachine(path), { recursive: url.searchParams.has('recursive') });
        return void response.writeHead(204).end();
      case 'GET /content':
        return await sendFile(request, response, path);
      case 'PUT /content':
        writeFileSync(inMachine(path), Buffer.concat(await request.toArray()));
        return void answer(200, entryOf(path));
      case 'GET /archive':
        response.writeHead(200);
        return await pipeline(archive ? [archive] : create({ cwd: inMachine(path) }, ['.']), response);
      case 'PUT /archive': {
        const unpack = extract({ cwd: inMachine(path) });
        for await (const chunk of request) unpack.write(chunk as Buffer);
        unpack.end();
        await once(unpack, 'close');
        return void answer(200, {
          entries: 1,
          refused_count: 1,
          refused: [{ name: 'a\u001bdevice', reason: 'it is one' }],
        });
      }
      case 'GET /watch':
        response.writeHead(200, { 'content-type': 'text/event-stream' });
        response.write('data: {"type":"ready"}\n\ndata: {"type":"created","path":"/d/a\\nb"}\n\n');
        return void response.end('data: {"type":"renamed","path":"/d/c","from":"/d/b"}\n\n');
      default: {
        const body = JSON.parse(Buffer.concat(await request.toArray()).toString());
        calls.push(JSON.stringify(body));
        if (operation === '/directory') mkdirSync(inMachine(body.path_encoded), { recursive: true });
        return void answer(200, entryOf(body.path_encoded ?? '/'));
      }
    }
  } catch (error) {
    if (response.headersSent) return void response.destroy(); // the client left in the middle of the body
    const { code = '' } = error as NodeJS.ErrnoException;
    const isMissing = code === 'ENOENT';
    answer(isMissing ? 404 : 409, { code: isMissing ? 'not_found' : 'conflict', detail: `${code}: ${path}` });
  }
}

async function sendFile(request: IncomingMessage, response: ServerResponse, path: string): Promise<void> {
  const { size } = statSync(inMachine(path));
  const start = Number(/^bytes=(\d+)-$/.exec(request.headers.range ?? '')?.[1] ?? 0);
  response.writeHead(start === 0 ? 200 : 206, {
    etag: '"v1"',
    'accept-ranges': 'bytes',
    'content-length': size - start,
  });
  if (breakAt === undefined) return pipeline(createReadStream(inMachine(path), { start }), response);
  const part = readFileSync(inMachine(path)).subarray(start, breakAt);
  breakAt = undefined;
  response.write(part, () => setTimeout(() => response.destroy(), 20));
}

async function sandbar(args: string[], input?: string | Buffer) {
  const env = { ...process.env, SANDBAR_HOME: '/nonexistent', SANDBAR_BASE_URL: baseUrl, SANDBAR_API_KEY: 'k' };
  const child = spawn(process.execPath, [CLI, ...args], { cwd: home, env });
  const out: Buffer[] = [];
  let stderr = '';
  child.stdout.on('data', (chunk) => out.push(chunk));
  child.stderr.on('data', (chunk) => {
    stderr += chunk;
  });
  child.stdin.on('error', () => undefined).end(input);
  const [code] = await once(child, 'close');
  return { code, stdout: Buffer.concat(out), stderr };
}

/** Runs a command that must succeed without a message. */
async function succeed(...args: string[]): Promise<Buffer> {
  const { code, stdout, stderr } = await sandbar(args);
  assert.deepEqual([code, stderr], [0, '']);
  return stdout;
}

describe('sandbar cp', () => {
  it('copies a file into a machine and back, byte for byte, with its mode', async () => {
    const bytes = randomBytes(700_001);
    writeFileSync(join(home, 'a file'), bytes);
    chmodSync(join(home, 'a file'), 0o755);
    await succeed('cp', 'a file', `${MACHINE}:/copy`);
    assert.deepEqual(readFileSync(inMachine('/copy')), bytes);
    assert.ok(calls.includes('PUT /content /copy mode=0755'), calls.join());
    chmodSync(inMachine('/copy'), 0o6750);
    await succeed('cp', `${MACHINE}:/copy`, 'back');
    assert.deepEqual(readFileSync(join(home, 'back')), bytes);
    assert.equal(statSync(join(home, 'back')).mode & 0o7777, 0o750 & ~process.umask());
    assert.deepEqual(readdirSync(home).sort(), ['a file', 'back']);
  });

  it('names the copy like the source when the target is an existing folder', async () => {
    writeFileSync(join(home, 'f'), 'x');
    for (const name of ['dir', 'far']) mkdirSync(inMachine(name));
    symlinkSync('far', inMachine('link'));
    await succeed('cp', './f', `${MACHINE}:/dir`);
    await succeed('cp', 'f', `${MACHINE}:/link/`);
    assert.deepEqual([readdirSync(inMachine('dir')), readdirSync(inMachine('far'))], [['f'], ['f']]);
    mkdirSync(join(home, 'here'));
    await succeed('cp', `${MACHINE}:/dir/f`, 'here');
    assert.deepEqual(readdirSync(join(home, 'here')), ['f']);
  });

  it('copies folders in both directions, with what is in them', async () => {
    mkdirSync(join(home, 'tree/empty'), { recursive: true });
    mkdirSync(join(home, 'tree/deep'));
    writeFileSync(join(home, 'tree/deep/.hidden ü'), 'h');
    symlinkSync('deep/.hidden ü', join(home, 'tree/link'));
    const { code, stderr } = await sandbar(['cp', 'tree', `${MACHINE}:/new`]);
    assert.deepEqual([code, stderr], [1, 'sandbar: a\\x1bdevice was left out: it is one\n'], 'the machine refused one');
    assert.deepEqual(readdirSync(inMachine('/new')).sort(), ['deep', 'empty', 'link']);
    await sandbar(['cp', 'tree', `${MACHINE}:/new`]);
    assert.deepEqual(readdirSync(inMachine('/new')).sort(), ['deep', 'empty', 'link', 'tree']);
    await sandbar(['cp', 'tree/.', `${MACHINE}:/new`]);
    assert.deepEqual(readdirSync(inMachine('/new')).length, 4, 'the contents, not the folder');
    await succeed('cp', `${MACHINE}:/new/tree`, 'back');
    assert.equal(readFileSync(join(home, 'back/link'), 'utf8'), 'h');
    assert.deepEqual(readdirSync(join(home, 'back')).sort(), ['deep', 'empty', 'link']);
  });

  it('copies standard input and to standard output', async () => {
    assert.equal((await sandbar(['cp', '-', `${MACHINE}:/piped`], 'from a pipe')).code, 0);
    assert.equal(String(await succeed('cp', `${MACHINE}:/piped`, '-')), 'from a pipe');
  });

  it('continues a download after its connection broke', async () => {
    writeFileSync(inMachine('/f'), '0123456789');
    breakAt = 4;
    await succeed('cp', `${MACHINE}:/f`, 'f');
    assert.equal(readFileSync(join(home, 'f'), 'utf8'), '0123456789');
  });

  it('leaves the old file and nothing else when a download fails', async () => {
    writeFileSync(join(home, 'f'), 'old');
    const { code, stderr } = await sandbar(['cp', `${MACHINE}:/absent`, 'f']);
    assert.deepEqual([code, stderr], [5, 'sandbar: not_found: ENOENT: /absent\n']);
    assert.deepEqual([readdirSync(home), readFileSync(join(home, 'f'), 'utf8')], [['f'], 'old']);
  });

  it('writes nothing outside the folder and sets no set-uid bits, whatever a machine sends', async () => {
    mkdirSync(inMachine('d'));
    archive = hostileArchive();
    const { code, stderr } = await sandbar(['cp', `${MACHINE}:/d`, 'target']);
    assert.equal(code, 1);
    assert.match(stderr, /left out/);
    assert.deepEqual(readdirSync(home), ['target']);
    assert.equal(statSync(join(home, 'target/setuid')).mode & 0o7000, 0);
    assert.equal(readdirSync(tmpdir()).includes('sandbar-cli-escaped'), false);
  });

  it('says in one line that a file here cannot be written, or that a machine sent no archive', async () => {
    mkdirSync(inMachine('d'));
    writeFileSync(inMachine('f'), '');
    archive = Buffer.alloc(3000, 'nonsense');
    const noArchive = await sandbar(['cp', `${MACHINE}:/d`, 'target']);
    assert.equal(noArchive.code, 1);
    assert.match(noArchive.stderr, /^(sandbar: .+\n)+$/);
    const noFolder = await sandbar(['cp', `${MACHINE}:/f`, 'no/such']);
    assert.deepEqual([noFolder.code, noFolder.stderr.split('\n').length], [1, 2], noFolder.stderr);
  });

  for (const args of [
    ['a', 'b'],
    [`${MACHINE}:/a`, `${MACHINE}:/b`],
    ['a', `${MACHINE}:b`],
    ['absent', `${MACHINE}:/a`],
    [`${MACHINE}:/f`, 'no/such/'],
    ['a'],
  ]) {
    it(`refuses ${args.join(' ')}`, async () => {
      writeFileSync(join(home, 'a'), '');
      writeFileSync(inMachine('/f'), '');
      const { code, stderr } = await sandbar(['cp', ...args]);
      assert.equal(code, 2, stderr);
      assert.match(stderr, /^sandbar: .+\n$/);
    });
  }
});

/** Makes a tar archive with entries that lead out of the folder, and an entry with set-uid and set-gid bits. */
function hostileArchive(): Buffer {
  return tarArchive(
    block({ name: '../escaped', data: 'x' }),
    block({ name: 'up', type: '2', linkName: '..' }),
    block({ name: 'up/escaped', data: 'x' }),
    block({ name: 'far', type: '2', linkName: tmpdir() }),
    block({ name: 'far/sandbar-cli-escaped', data: 'x' }),
    block({ name: 'setuid', data: 'x', mode: 0o6755 }),
  );
}

describe('sandbar files', () => {
  it('ls, stat and cat show what is there', async () => {
    mkdirSync(inMachine('d'));
    writeFileSync(inMachine('d/a\nb'), 'text');
    symlinkSync('a', inMachine('d/link'));
    const listed = String(await succeed('files', 'ls', `${MACHINE}:/d`));
    assert.match(
      listed,
      /^MODE +USER +GROUP +BYTES +MODIFIED +PATH\n-0644 .* 4 +t +\/d\/a\\x0ab\nl0777 .*\/d\/link -> a\n$/,
    );
    assert.equal(JSON.parse(String(await succeed('files', 'ls', '--json', `${MACHINE}:/d`))).entries.length, 2);
    assert.equal(JSON.parse(String(await succeed('files', 'stat', '--json', `${MACHINE}:/d`))).type, 'directory');
    assert.equal(String(await succeed('files', 'cat', `${MACHINE}:/d/a\nb`, `${MACHINE}:/d/a\nb`)), 'texttext');
  });

  it('mkdir, mv and rm change it', async () => {
    await succeed('files', 'mkdir', '--mode', '0700', '--user', 'me', `${MACHINE}:/a`, `${MACHINE}:/b`);
    assert.deepEqual(calls.slice(0, 2), ['POST /directory ', '{"path_encoded":"/a","mode":"0700","user":"me"}']);
    await succeed('files', 'mv', '--overwrite', `${MACHINE}:/a`, `${MACHINE}:/b`);
    assert.equal(calls.at(-1), '{"from_encoded":"/a","to_encoded":"/b","overwrite":true}');
    await succeed('files', 'rm', '-r', `${MACHINE}:/a`, `${MACHINE}:/b`);
    assert.deepEqual(readdirSync(root), []);
    assert.equal(calls.at(-1), 'DELETE  /b recursive=true');
    const { code, stderr } = await sandbar(['files', 'mv', `${MACHINE}:/a`, 'other:/b']);
    assert.deepEqual([code, stderr], [2, 'sandbar: both paths must be in the same machine\n']);
  });

  it('--encoded reaches names that are not UTF-8', async () => {
    await sandbar(['files', 'mkdir', '--encoded', `${MACHINE}:/%ff%20`]);
    assert.equal(calls[1], '{"path_encoded":"/%FF%20"}');
  });

  it('watch prints changes, line by line', async () => {
    const printed = await succeed('files', 'watch', '--no-recursive', `${MACHINE}:/d`);
    assert.equal(String(printed), 'ready\ncreated /d/a\\x0ab\nrenamed /d/b /d/c\n');
    assert.equal(calls[0], 'GET /watch /d recursive=false');
    const lines = String(await succeed('files', 'watch', '--json', `${MACHINE}:/d`)).split('\n');
    assert.deepEqual(JSON.parse(lines[1] ?? ''), { type: 'created', path: '/d/a\nb' });
  });

  it('without a subcommand shows its help', async () => {
    assert.equal((await sandbar(['files'])).code, 2);
    assert.match(String(await succeed('files', '--help')), /MACHINE:\/path/);
  });
});
