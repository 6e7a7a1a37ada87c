// `sandbar api`: sends any request of the API and prints the answer.
import { readFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { pipeline } from 'node:stream/promises';
import { type Command, InvalidArgumentError } from '@commander-js/extra-typings';
import { ConnectionError } from '@sandbar/sdk/errors.ts';
import { resolveSettings } from '@sandbar/sdk/settings.ts';
import { UsageError } from '../arguments.ts';
import { addExamples } from '../examples.ts';
import { exitCodeOfCode } from '../exit-codes.ts';
import { printLine, toPrintable } from '../print.ts';
import { sendRaw } from '../raw-request.ts';

type Pair = [name: string, value: string];

export function defineApi(command: Command): void {
  command
    .argument('<method>', 'GET, POST, PUT, PATCH or DELETE', (text) => text.toUpperCase())
    .argument('<path>', 'the path, such as /v1/machines', parsePath)
    .option('--data <body>', 'the body: JSON, @FILE for the content of a file, or - for the standard input')
    .option('--query <name=value>', 'a parameter of the query, as often as needed', collectPairsWith('='))
    .option('--header <name:value>', 'a header, as often as needed', collectPairsWith(':'))
    .option('-i, --include', 'print the status and the headers of the answer first')
    .addHelpText(
      'after',
      `
Sends one request with your key, without retries, and prints the body of the answer unchanged. On a terminal, JSON is
indented. An error of the service is printed in the same way, and the exit code is not 0. The body is sent as
application/json, unless --header says otherwise. The reference is at /docs of the service.`,
    )
    .action(async (method, path, { data, query = [], header = [], include }) => {
      const settings = resolveSettings({});
      const body = data === undefined ? undefined : await readBody(data);
      const answer = await sendRaw(settings, { method, path, query, headers: header, body });
      if (include) printHead(answer);
      if (answer.status >= 400) process.exitCode = exitCodeOfCode(await codeOf(answer.clone()));
      await printBody(answer).catch((error: unknown) => {
        throw new ConnectionError(settings.baseUrl, error);
      });
    });
  addExamples(
    command,
    'sandbar api GET /v1/machines --query state=running',
    `sandbar api POST /v1/machines --data '{"memory_mb": 512}'`,
    'sandbar api PATCH /v1/machines/MACHINE --data @changes.json -i',
  );
}

function parsePath(text: string): string {
  if (text.startsWith('/')) return text;
  throw new InvalidArgumentError('It must begin with a slash, such as /v1/machines.');
}

/** Returns a parser for a repeatable option whose argument is a name and a value, joined by `separator`. */
function collectPairsWith(separator: '=' | ':'): (text: string, previous?: Pair[]) => Pair[] {
  return (text, previous = []) => {
    const at = text.indexOf(separator);
    if (at > 0) return [...previous, [text.slice(0, at).trim(), text.slice(at + 1).trim()]];
    throw new InvalidArgumentError(`It must be NAME${separator}VALUE.`);
  };
}

async function readBody(data: string): Promise<Uint8Array<ArrayBuffer>> {
  if (data === '-') return new Uint8Array(await buffer(process.stdin));
  if (!data.startsWith('@')) return new TextEncoder().encode(data);
  try {
    return new Uint8Array(readFileSync(data.slice(1)));
  } catch (error) {
    throw new UsageError(`cannot read ${data.slice(1)}: ${error instanceof Error ? error.message : String(error)}`);
  }
}

/** Returns the error code of a response, or undefined if it has none, for example because a proxy sent it. */
async function codeOf(answer: Response): Promise<string | undefined> {
  try {
    const { code } = (await answer.json()) as { code?: unknown };
    return typeof code === 'string' ? code : undefined;
  } catch {
    return undefined;
  }
}

function printHead({ status, statusText, headers }: Response): void {
  printLine(`HTTP/1.1 ${status} ${statusText}`);
  for (const [name, value] of headers) printLine(`${name}: ${value}`);
  printLine('');
}

async function printBody(answer: Response): Promise<void> {
  const isJson = /^application\/json\b/.test(answer.headers.get('content-type') ?? '');
  if (process.stdout.isTTY && isJson) console.log(indent(await answer.text()));
  else if (answer.body) await pipeline(Readable.fromWeb(answer.body), process.stdout, { end: false });
}

/** Indents JSON and escapes its control characters. Returns text that is not JSON unchanged. */
function indent(text: string): string {
  try {
    return JSON.stringify(JSON.parse(text), null, 2).replace(/[^\n -~]/gu, escapeControl);
  } catch {
    return text;
  }
}

/** Replaces a character that could change what the terminal shows by a JSON escape, such as `\u001b`. */
function escapeControl(character: string): string {
  if (toPrintable(character) === character) return character;
  return `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`;
}
