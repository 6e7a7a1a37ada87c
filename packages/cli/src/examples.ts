// Adds the examples at the end of a command's help. A test parses each of them.

/** The only part of a command that is needed here. It fits commands with any arguments and options. */
type WithHelp = { addHelpText(position: 'after', text: string): unknown };

/** Adds examples at the end of the help of a command. Each example is a command line that begins with `sandbar`. */
export function addExamples<T extends WithHelp>(command: T, ...examples: readonly string[]): T {
  const heading = examples.length === 1 ? 'Example:' : 'Examples:';
  command.addHelpText('after', `\n${heading}\n${examples.map((line) => `  ${line}`).join('\n')}`);
  return command;
}
