// Writes the reference of the CLI. It runs each command with `--help` and uses the output, so the page always agrees
// with the program.
import { execFile } from 'node:child_process';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);
/** How many processes of the CLI run at once. */
const AT_ONCE = 4;

type Help = { words: string[]; text: string; subcommands: string[] };

/** The Markdown of all commands, in the order of the CLI's own list. */
export async function cliPage(checkout: string): Promise<string> {
  const all = await readHelp(checkout, []);
  const top = await mapLimited(all.subcommands, (name) => readTree(checkout, [name]));
  return [`\`\`\`text\n${all.text}\n\`\`\`\n`, ...top.flat().map(sectionOf)].join('\n');
}

function sectionOf({ words, text }: Help): string {
  const level = '#'.repeat(Math.min(words.length + 1, 4));
  return `${level} sandbar ${words.join(' ')}\n\n\`\`\`text\n${text}\n\`\`\`\n`;
}

/** The help of a command and of all commands below it. */
async function readTree(checkout: string, words: string[]): Promise<Help[]> {
  const help = await readHelp(checkout, words);
  const below: Help[] = [];
  for (const name of help.subcommands) below.push(...(await readTree(checkout, [...words, name])));
  return [help, ...below];
}

async function readHelp(checkout: string, words: string[]): Promise<Help> {
  const cli = path.join(checkout, 'packages/cli/bin/sandbar.mjs');
  const env = { ...process.env, COLUMNS: '100', NO_COLOR: '1' };
  const { stdout } = await run(process.execPath, [cli, ...words, '--help'], { env });
  return { words, text: stdout.trimEnd(), subcommands: subcommandsOf(stdout) };
}

/** The names in the part "Commands:" of a help text. Skips lines with a larger indent: they continue a description. */
function subcommandsOf(help: string): string[] {
  const part = /^Commands:\n((?: .*\n?)*)/m.exec(help)?.[1] ?? '';
  const names = [...part.matchAll(/^ {2}([a-z][\w-]*)/gm)].map((match) => match[1] ?? '');
  return names.filter((name) => name !== 'help');
}

async function mapLimited<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < items.length; index = next++) results[index] = await work(items[index] as T);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
  return results;
}
