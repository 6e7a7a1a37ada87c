// What every command is made of, and how it reads its arguments.
import { type ParseArgsConfig, parseArgs } from 'node:util';
import { Sandbar } from '@sandbar/sdk/client.ts';
import { UsageError } from './usage-error.ts';

export type Command = {
  name: string;
  /** One line for the list of commands. */
  summary: string;
  help: string;
  /** Runs with the arguments after the name; resolves with the exit code. */
  run: (args: readonly string[]) => Promise<number>;
};

/** `parseArgs` with its errors as UsageError. What follows `--` is in `rest` and never parsed. */
export function readArguments<const T extends NonNullable<ParseArgsConfig['options']>>(
  args: readonly string[],
  options: T,
) {
  const end = args.indexOf('--');
  const own = end < 0 ? args : args.slice(0, end);
  try {
    const { values, positionals } = parseArgs({ args: [...own], options, allowPositionals: true, strict: true });
    return { values, positionals, rest: end < 0 ? [] : args.slice(end + 1) };
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message.split(/\.\s/)[0] : String(error));
  }
}

/** A whole number of an option. Throws UsageError. */
export function readInteger(option: string, text: string | undefined): number | undefined {
  if (text === undefined) return undefined;
  const value = Number(text);
  if (/^\d+$/.test(text) && Number.isSafeInteger(value)) return value;
  throw new UsageError(`${option} must be a whole number, not "${text}"`);
}

/** The value of an option that must be given. Throws UsageError. */
export function readRequired(option: string, text: string | undefined): string {
  if (text !== undefined) return text;
  throw new UsageError(`${option} is required`);
}

/** One of a few words, when it was given. Throws UsageError. */
export function readChoice<const T extends readonly string[], U extends string | undefined>(
  option: string,
  allowed: T,
  text: U,
): T[number] | Extract<U, undefined> {
  if (text === undefined || allowed.includes(text)) return text as T[number] | Extract<U, undefined>;
  throw new UsageError(`${option} must be one of ${allowed.join(', ')}, not "${text}"`);
}

/** `KEY=VALUE` options as an object; a KEY alone takes the value of the caller's environment. Throws UsageError. */
export function readEnvironment(entries: readonly string[] = []): Record<string, string> | undefined {
  if (entries.length === 0) return undefined;
  return Object.fromEntries(
    entries.map((entry) => {
      const at = entry.indexOf('=');
      if (at > 0) return [entry.slice(0, at), entry.slice(at + 1)];
      const inherited = process.env[entry];
      if (at < 0 && inherited !== undefined) return [entry, inherited];
      throw new UsageError(`--env takes KEY=VALUE, or the KEY of a variable that is set, not "${entry}"`);
    }),
  );
}

/** Leaves out what was not given, so that the service's defaults hold. */
export function onlyGiven<T extends object>(values: T): { [K in keyof T]?: Exclude<T[K], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as never;
}

export function connect(): Sandbar {
  return new Sandbar({ userAgent: 'sandbar-cli/0.1.0' });
}

export function printJson(value: unknown): void {
  console.log(JSON.stringify(value, null, 2));
}
