// `sandbar completion`: prints the completion script of a shell. The script calls the hidden command
// `sandbar __complete`, which prints the possible completions.
import { type Command, InvalidArgumentError } from '@commander-js/extra-typings';
import type { Machine } from '@sandbar/contract/machine.ts';
import { Client } from '@sandbar/sdk/client.ts';
import { type Candidate, type CommandNode, complete } from '../complete.ts';
import { COMPLETION_SCRIPTS, type Shell } from '../completion-scripts.ts';
import { addExamples } from '../examples.ts';
import { toPrintable } from '../print.ts';

/** How long a completion waits for the list of machines from the API, in milliseconds. */
const ANSWER_MS = 1000;

export function defineCompletion(command: Command): void {
  command
    .argument('<shell>', 'bash, zsh or fish', parseShell)
    .addHelpText(
      'after',
      `
Prints a script that completes commands, options, and names and ids of machines. Add one of these lines to the file that
your shell reads at its start:
  bash  source <(sandbar completion bash)
  zsh   source <(sandbar completion zsh)       (after compinit)
  fish  sandbar completion fish | source`,
    )
    .action((shell) => {
      process.stdout.write(COMPLETION_SCRIPTS[shell]);
    });
  addExamples(command, 'sandbar completion bash');
}

function parseShell(text: string): Shell {
  if (Object.hasOwn(COMPLETION_SCRIPTS, text)) return text as Shell;
  throw new InvalidArgumentError('It must be bash, zsh or fish.');
}

/** `define` loads a top-level command of the program and adds its options, arguments and subcommands. */
export function defineComplete(command: Command, program: CommandNode, define: (name: string) => Promise<void>): void {
  command
    .argument('[words...]')
    .allowUnknownOption()
    .helpOption(false)
    .action(async (words) => {
      // Print no errors, because the shell would show them in the middle of the command line.
      const found = await complete(program, words, { define, machines: listMachines }).catch(() => []);
      for (const { word, description } of found) console.log(`${word}\t${toPrintable(description)}`);
    });
}

/** Returns an empty list when the API does not answer within a second. */
async function listMachines(): Promise<Candidate[]> {
  try {
    const client = new Client({ userAgent: 'sandbar-cli/0.1.0', retryForSec: 0, timeoutMs: ANSWER_MS });
    return (await client.machines.list()).map((machine, _, all) => describeMachine(machine, all));
  } catch {
    return [];
  }
}

/** Offers a machine by its name, or by its id when the name is not unique or would need quotes in a shell. */
function describeMachine({ id, name, state }: Machine, all: readonly Machine[]): Candidate {
  const isUsable = /^[\w.][\w.-]*$/.test(name) && all.filter((other) => other.name === name).length === 1;
  return isUsable
    ? { word: name, description: state }
    : { word: id, description: name === '' ? state : `${name}, ${state}` };
}
