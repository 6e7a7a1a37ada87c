// Finds machines, volumes, snapshots, keys and jobs by what the user types: an id, the beginning of an id, or a name.
import type { Client } from '@sandbar/sdk/client.ts';
import { UsageError } from './arguments.ts';
import { CliError } from './cli-error.ts';
import { EXIT } from './exit-codes.ts';

type Named = { id: string; name: string };
export type Kind = 'machine' | 'volume' | 'snapshot' | 'key';

const UUID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;
/** A text with fewer characters is looked up only as a name, and not as the beginning of an id. */
const PREFIX_CHARACTERS = 4;
const CANDIDATES_SHOWN = 10;

/** How arguments that name an object are described in the help. */
export const BY_NAME = 'by id, by the first characters of its id (4 or more) or by its name';

/** Returns the id. A full id needs no request. Throws UsageError when several match, and CliError when none does. */
export async function resolveId(client: Client, kind: Kind, text: string): Promise<string> {
  return findId(kind, text, `sandbar ${kind} ls`, () => listOf(client, kind));
}

/**
 * Returns the ids in the given order, without duplicates. A command finds all ids before it changes anything, so a
 * mistake in its arguments changes nothing. Throws as `resolveId` does.
 */
export async function resolveIds(client: Client, kind: Kind, texts: readonly string[]): Promise<string[]> {
  let listed: Promise<Named[]> | undefined;
  const list = () => {
    listed ??= listOf(client, kind);
    return listed;
  };
  const ids = new Set<string>();
  for (const text of texts) ids.add(await findId(kind, text, `sandbar ${kind} ls`, list));
  return [...ids];
}

/** Returns the id of a job of a machine. Throws as `resolveId` does. */
export async function resolveJob(client: Client, machineId: string, text: string): Promise<string> {
  return findId('job', text, `sandbar jobs ${machineId}`, () => client.execs.list(machineId));
}

/** Returns the id that an option names, or undefined when the option is not given. */
export async function resolveGiven(client: Client, kind: Kind, text: string | undefined): Promise<string | undefined> {
  return text === undefined ? undefined : resolveId(client, kind, text);
}

async function findId(what: string, text: string, listing: string, list: () => Promise<Named[]>): Promise<string> {
  if (UUID.test(text)) return text.toLowerCase();
  const isPrefix = text.length >= PREFIX_CHARACTERS;
  const start = text.toLowerCase();
  const found = (await list()).filter(({ id, name }) => name === text || (isPrefix && id.startsWith(start)));
  const [only] = found;
  if (only === undefined) {
    throw new CliError(
      EXIT.notFound,
      `there is no ${what} with the name or the beginning of an id "${text}"; ${listing} lists them`,
    );
  }
  if (found.length === 1) return only.id;
  const shown = found.slice(0, CANDIDATES_SHOWN).map(({ id, name }) => (name === '' ? id : `${id} (${name})`));
  const more = found.length > shown.length ? ` and ${found.length - shown.length} more` : '';
  throw new UsageError(
    `"${text}" is not one ${what} but ${found.length}; name one by its id: ${shown.join(', ')}${more}`,
  );
}

function listOf(client: Client, kind: Kind): Promise<Named[]> {
  switch (kind) {
    case 'machine':
      return client.machines.list();
    case 'volume':
      return client.volumes.list();
    case 'snapshot':
      return client.snapshots.list();
    case 'key':
      return client.apiKeys.list();
  }
}
