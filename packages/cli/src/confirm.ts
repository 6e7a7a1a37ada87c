// Asks the user before a command deletes data that cannot be restored.
import { UsageError } from './arguments.ts';
import { CliError } from './cli-error.ts';
import { EXIT } from './exit-codes.ts';
import { Interrupted } from './interruption.ts';
import { toPrintable } from './print.ts';

/** The option that skips the question. Every command that asks has it. */
export const YES_OPTION = ['-y, --yes', 'do not ask for confirmation'] as const;

/**
 * Asks `question` on the terminal, such as `Delete 2 volumes with their data?`, and returns if the answer is yes. With
 * `isYes`, returns without asking. Throws UsageError when there is no terminal to ask on, and CliError when the answer
 * is not yes.
 */
export async function confirm(question: string, isYes: boolean | undefined): Promise<void> {
  if (isYes) return;
  if (!process.stdin.isTTY || !process.stderr.isTTY) {
    throw new UsageError(`${question} Nothing was changed: there is no terminal to ask on, so confirm with --yes`);
  }
  const answer = await ask(`${toPrintable(question)} [y/N] `);
  if (!/^y(es)?$/i.test(answer.trim())) throw new CliError(EXIT.error, 'nothing was changed');
}

/** Returns the line that the user types, or an empty text at the end of the input. Throws Interrupted at Ctrl-C. */
async function ask(question: string): Promise<string> {
  const { createInterface } = await import('node:readline');
  const lines = createInterface({ input: process.stdin, output: process.stderr });
  try {
    return await new Promise<string>((resolve, reject) => {
      lines.once('SIGINT', () => reject(new Interrupted('SIGINT')));
      lines.once('close', () => resolve(''));
      lines.question(question, resolve);
    });
  } finally {
    lines.close();
  }
}
