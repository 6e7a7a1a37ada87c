// The history of commands that were run from this page. It stays in memory and is not stored, because a command may
// contain a password.

const COMMANDS_MOST = 100;

/** Newest last. A repeated command moves to the end. */
export const addCommand = (commands: readonly string[], command: string): string[] =>
  [...commands.filter((one) => one !== command), command].slice(-COMMANDS_MOST);

/**
 * What the box shows. `at` is an index of `commands`; the index after the last command is the draft that was not run
 * yet.
 */
export type Recall = { at: number; draft: string };

/** Goes to an older (-1) or a newer (+1) command. Returns undefined at the end of the list. */
export function recall(
  commands: readonly string[],
  { at, draft }: Recall,
  step: -1 | 1,
): (Recall & { text: string }) | undefined {
  const next = Math.min(at, commands.length) + step;
  if (next < 0 || next > commands.length) return undefined;
  return { at: next, draft, text: commands[next] ?? draft };
}
