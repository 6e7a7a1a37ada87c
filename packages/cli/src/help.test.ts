// Tests the help, and that each example in it is a command line that the CLI accepts.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { CommandUnknownOpts } from '@commander-js/extra-typings';
import { COMMANDS, defineProgram } from './main.ts';
import { printed, sandbar, useStandIn } from './testing/api-stand-in.ts';

useStandIn();

const program: CommandUnknownOpts = await defineProgram(() => true);

/** Yields the command and all its subcommands, each with its full name. */
function* walk(command: CommandUnknownOpts, name: string): Generator<[name: string, command: CommandUnknownOpts]> {
  yield [name, command];
  for (const child of command.commands) {
    if (child.name() !== 'help') yield* walk(child, `${name} ${child.name()}`);
  }
}

/** Returns the text that `--help` prints, including the texts that `addHelpText` added. */
function helpOf(command: CommandUnknownOpts): string {
  let text = '';
  command.configureOutput({ writeOut: (part) => (text += part) });
  command.outputHelp();
  return text;
}

/** The command lines of the section with examples. */
function examplesIn(help: string): string[] {
  const [, section = ''] = help.split(/^Examples?:\n/m);
  return [...section.matchAll(/^ {2}(\S.*)$/gm)].map(([, line = '']) => line);
}

/** Returns the words of the `sandbar` call in a shell command line. */
function wordsOf(example: string): string[] {
  const own = example.split(/ [|><] /).find((part) => part.startsWith('sandbar'));
  const words = [...(own ?? '').matchAll(/"([^"]*)"|'([^']*)'|(\S+)/g)];
  return words.map(([, double, single, plain]) => double ?? single ?? plain ?? '').slice(1);
}

const EXAMPLES = [...walk(program, 'sandbar')].map(([name, command]) => ({
  name,
  examples: examplesIn(helpOf(command)),
}));

const hidden = Object.entries(COMMANDS).flatMap(([name, { isHidden }]) => (isHidden ? [name] : []));

describe('the help', () => {
  for (const { name, examples } of EXAMPLES) {
    if (hidden.some((one) => name === `sandbar ${one}`)) continue;
    it(`of ${name} has examples that the CLI accepts`, async () => {
      assert.ok(examples.length > 0, 'there is no section "Example:"');
      const fresh: CommandUnknownOpts = await defineProgram(() => true);
      let ran = '';
      for (const [path, command] of walk(fresh, 'sandbar')) {
        command.exitOverride().configureOutput({ writeErr: () => {}, outputError: () => {} });
        command.action(() => {
          ran = path;
        });
      }
      for (const example of examples) {
        ran = '';
        await fresh.parseAsync(wordsOf(example), { from: 'user' });
        assert.ok(ran !== '' && ran.startsWith(name === 'sandbar' ? '' : name), `${example} runs "${ran}"`);
      }
    });
  }

  it('lists every command, the present names only, and the exit codes', async () => {
    const text = await printed('--help');
    const [, listed = ''] = text.split('Commands:\n');
    const names = [...listed.matchAll(/^ {2}([a-z]+) /gm)].map(([, name = '']) => name);
    for (const name of Object.keys(COMMANDS)) assert.equal(names.includes(name), !hidden.includes(name), name);
    for (const old of ['machines', 'volumes', 'snapshots', 'images', 'quotas']) assert.ok(!names.includes(old), old);
    assert.match(text, /\n +6 +a quota, the rate limit/);
    assert.match(text, /\n +130 +interrupted/);
  });

  it('of a command is printed by --help and by `sandbar help`, also for former names', async () => {
    for (const line of ['machine set --help', 'help machine set', 'machines update --help', 'help machines update']) {
      const { code, stdout } = await sandbar(line.split(' '));
      assert.equal(code, 0, line);
      assert.match(
        stdout.toString(),
        /^Usage: sandbar machine set [\s\S]*--on-expiry[\s\S]*\n {2}sandbar machine set web/,
        line,
      );
    }
  });

  it('is printed for a group without a subcommand, with exit code 2, and for no arguments', async () => {
    const bare = await sandbar([]);
    assert.equal(bare.code, 2);
    assert.match(bare.stderr, /^Usage: sandbar COMMAND/);
    for (const group of ['machine', 'volume', 'key', 'files']) {
      const { code, stderr } = await sandbar([group]);
      assert.equal(code, 2, group);
      assert.match(stderr, new RegExp(`^Usage: sandbar ${group} `));
    }
  });
});

describe('the command line', () => {
  it('with a misspelt command or option is an error with a suggestion', async () => {
    for (const [line, hint] of [
      ['machne', /\(Did you mean machine\?\); sandbar --help tells more\n$/],
      ['machine strt m1', /\(Did you mean start\?\); sandbar machine --help tells more\n$/],
      ['machines destroy m1 --keep-dsk', /\(Did you mean --keep-disk\?\); sandbar machine rm --help/],
    ] as const) {
      const { code, stderr } = await sandbar(line.split(' '));
      assert.equal(code, 2);
      assert.match(stderr, hint);
    }
  });

  it('with a wrong option prints one line and exits with 2, and --version needs no service', async () => {
    assert.match(await printed('--version'), /^\d+\.\d+\.\d+\n$/);
    const { code, stderr } = await sandbar(['run', '--nope', '--', 'x']);
    assert.equal(code, 2);
    assert.match(stderr, /^sandbar: .*--nope.*\n$/);
    assert.equal((await sandbar(['run', '--vcpus', 'two', '--', 'x'])).code, 2);
    assert.equal((await sandbar(['nope'])).code, 2);
  });
});
