// Tests the completion of command lines: what the CLI offers, and the scripts in the shells that are installed here.
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, describe, it } from 'node:test';
import { answerJson, CLI, environment, makeFolder, run, startServer } from './test-support.ts';

const folder = makeFolder();
const programs = path.join(folder, 'bin');
mkdirSync(programs);
writeFileSync(path.join(programs, 'sandbar'), `#!/bin/sh\nexec ${process.execPath} ${CLI} "$@"\n`, { mode: 0o755 });

let machines: { id: string; name: string; state: string }[] | 'silence' | 'error';

const baseUrl = await startServer((_, response) => {
  if (machines === 'silence') return;
  if (machines === 'error') answerJson(response, 500, { code: 'internal_error', detail: 'a bug' });
  else answerJson(response, 200, { machines });
});
const env = environment({
  SANDBAR_BASE_URL: baseUrl,
  SANDBAR_API_KEY: 'k',
  PATH: `${programs}:${process.env.PATH}`,
  HOME: folder,
});

beforeEach(() => {
  machines = [
    { id: 'id-1', name: 'web', state: 'running' },
    { id: 'id-2', name: 'twin', state: 'running' },
    { id: 'id-3', name: 'twin', state: 'stopped' },
    { id: 'id-4', name: 'a b;\u001b', state: 'stopped' },
    { id: 'id-5', name: '', state: 'running' },
  ];
});

/** The lines that the command prints for the words after `sandbar`. */
async function ask(...words: string[]): Promise<string[]> {
  const { code, stdout, stderr } = await run(process.execPath, [CLI, '__complete', '--', ...words], env);
  assert.deepEqual([code, stderr], [0, '']);
  return stdout.toString().split('\n').slice(0, -1);
}
const wordsOf = (lines: string[]) => lines.map((line) => line.split('\t')[0]);

describe('sandbar completion', () => {
  it('offers commands with their descriptions, and hides what the help hides', async () => {
    const commands = await ask('');
    assert.ok(commands.some((line) => /^run\truns a command/.test(line)));
    assert.ok(!wordsOf(commands).includes('__complete'));
    assert.deepEqual(wordsOf(await ask('whoa')), ['whoami']);
    assert.deepEqual(wordsOf(await ask('help', 'whoa')), ['whoami']);
  });

  it('offers the subcommands and options of the command before the cursor', async () => {
    assert.deepEqual(wordsOf(await ask('admin', 'acc')), ['account']);
    assert.deepEqual(wordsOf(await ask('admin', 'account', 'crea')), ['create']);
    assert.deepEqual(wordsOf(await ask('login', '--')), ['--scope', '--name', '--no-browser', '--help']);
    assert.deepEqual(wordsOf(await ask('login', '--name', 'x', '--sc')), ['--scope']);
  });

  it('offers the values of an option, however the shell splits the words', async () => {
    for (const words of [
      ['--scope', ''],
      ['--scope', '='],
      ['--scope', '=', ''],
    ]) {
      assert.deepEqual(wordsOf(await ask('login', ...words)), ['read', 'full']);
    }
    assert.deepEqual(wordsOf(await ask('login', '--scope', 'r')), ['read']);
    assert.deepEqual(wordsOf(await ask('login', '--scope', '=', 'r')), ['read']);
    assert.deepEqual(wordsOf(await ask('login', '--scope=r')), ['--scope=read']);
    assert.deepEqual(await ask('login', '--name', ''), [], 'a free text has no candidates');
  });

  it('offers machines by name, or by id when the name is not unique or needs quotes', async () => {
    assert.deepEqual(await ask('exec', ''), [
      'web\trunning',
      'id-2\ttwin, running',
      'id-3\ttwin, stopped',
      'id-4\ta b;\\x1b, stopped',
      'id-5\trunning',
    ]);
    assert.deepEqual(wordsOf(await ask('exec', 'w')), ['web']);
    assert.deepEqual(await ask('exec', 'web', '--', '--'), [], 'behind -- is the command line of the machine');
  });

  it('prints nothing when the service does not answer within a second, or answers with an error', async () => {
    for (const state of ['silence', 'error'] as const) {
      machines = state;
      assert.deepEqual(await ask('exec', ''), []);
    }
    const noKey = environment({ HOME: folder, XDG_CONFIG_HOME: folder });
    const { code, stdout, stderr } = await run(process.execPath, [CLI, '__complete', '--', 'exec', ''], noKey);
    assert.deepEqual([code, stdout.toString(), stderr], [0, '', '']);
  });

  it('refuses an unknown shell', async () => {
    const { code, stderr } = await run(process.execPath, [CLI, 'completion', 'csh'], env);
    assert.equal(code, 2);
    assert.match(stderr, /It must be bash, zsh or fish/);
  });
});

describe('the completion script', () => {
  const skipWithout = (shell: string) => ({ skip: spawnSync(shell, ['-c', ':']).error !== undefined });
  const inShell = async (shell: string, args: string[]) => {
    const { code, stdout, stderr } = await run(shell, args, env);
    assert.deepEqual([code, stderr], [0, '']);
    return stdout.toString();
  };

  for (const shell of ['bash', 'zsh', 'fish']) {
    it(`of ${shell} has no syntax error`, skipWithout(shell), async () => {
      const { stdout } = await run('sandbar', ['completion', shell], env);
      const file = path.join(folder, `completion.${shell}`);
      writeFileSync(file, stdout);
      assert.ok(stdout.length > 0);
      await inShell(shell, ['-n', file]);
    });
  }

  it('works in bash', skipWithout('bash'), async () => {
    const script = `
      source <(sandbar completion bash)
      ask() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _sandbar; echo "\${COMPREPLY[*]}"; }
      ask sandbar who
      ask sandbar login --scope = ''
      ask sandbar exec ''
      complete -p sandbar`;
    assert.deepEqual((await inShell('bash', ['--norc', '-c', script])).split('\n'), [
      'whoami',
      'read full',
      'web id-2 id-3 id-4 id-5',
      'complete -o default -F _sandbar sandbar',
      '',
    ]);
  });

  it('works in fish, and completes file names when the CLI offers nothing', skipWithout('fish'), async () => {
    const ask = (line: string) =>
      inShell('fish', ['--no-config', '-c', `sandbar completion fish | source; complete -C ${JSON.stringify(line)}`]);
    assert.match(await ask('sandbar who'), /^whoami\tshows the account/);
    assert.equal(await ask('sandbar exec w'), 'web\trunning\n');
    assert.equal(await ask(`sandbar cp ${programs}/sand`), `${programs}/sandbar\n`);
  });

  it('works in zsh', skipWithout('zsh'), async () => {
    // Run zsh in a pseudo-terminal, because it completes only on a terminal.
    const script = `
      zmodload zsh/zpty
      zpty z zsh -f -i
      zpty -w z 'PS1=; autoload -Uz compinit; compinit -u -D; source <(sandbar completion zsh); echo LOAD''ED'
      zpty -r z line '*LOADED*'
      zpty -w -n z $'sandbar exec w\\t'
      zpty -r -m z line '*web*' && echo completed`;
    assert.equal(await inShell('zsh', ['-f', '-c', script]), 'completed\n');
  });
});
