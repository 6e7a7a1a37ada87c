// Statements of the hot path: built with Kysely like all others, but once, at their first use, and not on every request.
// (Building and compiling takes 0.05 to 0.15 ms of a request's processor time, as much as PostgreSQL takes to answer.)
import { type Compilable, CompiledQuery } from 'kysely';
import type { Db, Tx } from './database.ts';

/** Stands for an argument, or a property of an argument, while a statement is compiled. */
class Placeholder {
  readonly read: (args: readonly unknown[]) => unknown;
  constructor(read: (args: readonly unknown[]) => unknown) {
    this.read = read;
  }
}

/**
 * Makes a function that runs the statement that `build` returns. `build` runs once, with placeholders: it may pass an
 * argument, or a property of an argument, to Kysely as a value, and must not look at it or decide by it.
 */
export function statement<Args extends readonly unknown[], Row>(
  build: (db: Db | Tx, ...args: Args) => Compilable<Row>,
): (db: Db | Tx, ...args: Args) => Promise<Row[]> {
  let compiled: { sql: string; read: (args: readonly unknown[]) => unknown[] } | undefined;
  return async (db, ...args) => {
    compiled ??= compile(db, build as unknown as Build);
    const { rows } = await db.executeQuery<Row>(CompiledQuery.raw(compiled.sql, compiled.read(args)));
    return rows;
  };
}

type Build = (db: Db | Tx, ...args: unknown[]) => Compilable<unknown>;

function compile(db: Db | Tx, build: Build) {
  const placeholders = Array.from({ length: build.length - 1 }, (_, index) => placeholderOf(index));
  const { sql, parameters } = build(db, ...placeholders).compile();
  const readers = parameters.map((value) => (value instanceof Placeholder ? value.read : () => value));
  return { sql, read: (args: readonly unknown[]) => readers.map((read) => read(args)) };
}

/** A property of it is a placeholder for that property of the argument. */
function placeholderOf(index: number): Placeholder {
  return new Proxy(new Placeholder((args) => args[index]), {
    get: (target, name) =>
      name === 'read'
        ? target.read
        : typeof name === 'string' && !KYSELY_ASKS.has(name)
          ? new Placeholder((args) => (args[index] as Record<string, unknown>)[name])
          : undefined,
  });
}

/** What Kysely looks for in a value to see whether it is an expression. */
const KYSELY_ASKS: ReadonlySet<string> = new Set([
  'toOperationNode',
  'expressionType',
  'isOperationNodeSource',
  'then',
  'as',
]);
