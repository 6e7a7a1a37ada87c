// Finds the completions of the last word of a command line. Commands and options come from their definitions, machines
// from the API.

/** The parts of commander's classes that the search reads. */
export type CommandNode = {
  name: () => string;
  aliases: () => string[];
  description: () => string;
  commands: readonly CommandNode[];
  options: readonly OptionNode[];
  registeredArguments: readonly ArgumentNode[];
  createHelp: () => {
    visibleCommands: (command: never) => readonly CommandNode[];
    visibleOptions: (command: never) => readonly OptionNode[];
  };
};
type OptionNode = {
  short?: string | undefined;
  long?: string | undefined;
  required: boolean;
  description: string;
  argChoices?: string[] | undefined;
};
type ArgumentNode = { name: () => string; variadic: boolean; argChoices?: string[] | undefined };

export type Candidate = { word: string; description: string };

export type Sources = {
  /** Loads a top-level command and adds its options, arguments and subcommands. */
  define: (name: string) => Promise<void>;
  /** Returns the machines of the account, or an empty list when the API does not answer soon. */
  machines: () => Promise<Candidate[]>;
};

/** Returns the candidates for the last of `words`, which are the words after `sandbar`. */
export async function complete(program: CommandNode, words: readonly string[], sources: Sources): Promise<Candidate[]> {
  // bash passes `--scope=read` as three words, so drop the `=`.
  const [current = '', ...before] = words.filter((word) => word !== '=').reverse();
  const typed = words.at(-1) === '=' ? '' : current;
  const passed = words.at(-1) === '=' ? [current, ...before] : before;
  const place = await walk(program, passed.reverse(), sources.define);
  if (place === undefined) return [];
  const candidates = await candidatesAt(place, typed, sources);
  return candidates.filter(({ word }) => word.startsWith(typed));
}

/** A position in a command line: the innermost command before it, and what that command has got so far. */
type Place = {
  command: CommandNode;
  /** How many arguments the command has got. */
  argumentCount: number;
  /** The option whose value comes next. */
  option: OptionNode | undefined;
};

/** Finds the position after `words`. Undefined after `--`, because what follows is a command for the machine. */
async function walk(
  program: CommandNode,
  words: readonly string[],
  define: Sources['define'],
): Promise<Place | undefined> {
  const place: Place = { command: program, argumentCount: 0, option: undefined };
  for (const word of words) {
    if (place.option !== undefined) place.option = undefined;
    else if (word === '--') return undefined;
    else if (word.startsWith('-'))
      place.option = place.command.options.find((option) => isNamed(option, word) && option.required);
    else await enter(place, word, program, define);
  }
  return place;
}

/** Moves `place` into the subcommand that `word` names. If there is none, counts `word` as an argument. */
async function enter(place: Place, word: string, program: CommandNode, define: Sources['define']): Promise<void> {
  const isHelp = place.command === program && word === 'help';
  const next = place.command.commands.find((one) => one.name() === word || one.aliases().includes(word));
  if (next === undefined) {
    if (!isHelp) place.argumentCount += 1;
    return;
  }
  if (place.command === program) await define(next.name());
  place.command = next;
  place.argumentCount = 0;
}

async function candidatesAt(
  { command, argumentCount, option }: Place,
  typed: string,
  sources: Sources,
): Promise<Candidate[]> {
  if (option !== undefined) return choicesOf(option.argChoices);
  const help = command.createHelp();
  if (typed.startsWith('-')) {
    const [flag, value] = typed.split('=', 2);
    const options = help.visibleOptions(command as never);
    if (value === undefined) return options.flatMap(describeOption);
    const chosen = options.find((one) => isNamed(one, flag))?.argChoices;
    return choicesOf(chosen).map(({ word }) => ({ word: `${flag}=${word}`, description: '' }));
  }
  const commands = help.visibleCommands(command as never);
  if (commands.length > 0 && argumentCount === 0) {
    return commands.map((one) => ({ word: one.name(), description: one.description() }));
  }
  const last = command.registeredArguments.at(-1);
  const argument = command.registeredArguments[argumentCount] ?? (last?.variadic ? last : undefined);
  if (argument?.argChoices) return choicesOf(argument.argChoices);
  return /^machines?$/.test(argument?.name() ?? '') ? sources.machines() : [];
}

function isNamed({ short, long }: OptionNode, flag: string | undefined): boolean {
  return flag !== undefined && (flag === short || flag === long);
}

function choicesOf(choices: readonly string[] = []): Candidate[] {
  return choices.map((word) => ({ word, description: '' }));
}

function describeOption({ long, short, description }: OptionNode): Candidate[] {
  const word = long ?? short;
  return word === undefined ? [] : [{ word, description }];
}
