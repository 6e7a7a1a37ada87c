// `sandbar key`: creates, lists and revokes API keys. The service lets only a signed-in person manage keys and answers a
// key with `forbidden`; the error then says where keys are managed.
import { type Command, Option } from '@commander-js/extra-typings';
import type { ApiKey, KeyScope } from '@sandbar/contract/api-key.ts';
import { ForbiddenError } from '@sandbar/sdk/service-errors.ts';
import { collectIds, onlyGiven, parseDuration } from '../arguments.ts';
import { CliError } from '../cli-error.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { EXIT } from '../exit-codes.ts';
import { printJson, printLine, printNotice, printRows } from '../print.ts';
import { BY_NAME, resolveIds } from '../resolve-id.ts';

/** A copy of the contract's list, because importing the list would load all schemas and double the start-up time. */
const SCOPES = ['read', 'full'] as const satisfies readonly KeyScope[];

const HEADINGS = ['ID', 'NAME', 'SCOPE', 'KEY', 'CREATED', 'LAST USED', 'EXPIRES'];

export function defineKey(command: Command): void {
  command.addHelpText(
    'after',
    `
A key cannot create, list or revoke keys: that takes a signed-in person. The page API keys of the dashboard does all of it,
and sandbar login makes a key for this computer.`,
  );
  addExamples(command, 'sandbar key ls');
  const create = command
    .command('create')
    .description('creates a key and prints it, once')
    .requiredOption('--name <name>', 'a label for the key')
    .addOption(new Option('--scope <scope>', 'what it may do').choices(SCOPES).default('full'))
    .option('--expires <duration>', 'refuse the key after a time such as 12h or 30d (never)', parseDuration)
    .option('--json', 'print the answer of the API')
    .action(async ({ name, scope, expires, json }) => {
      const expiresAt = expires === undefined ? undefined : new Date(Date.now() + expires * 1000).toISOString();
      const spec = { name, scope, ...onlyGiven({ expires_at: expiresAt }) };
      const created = await connect().apiKeys.create(spec).catch(explain);
      if (json) return printJson(created);
      printLine(created.key);
      printNotice('this key is shown only once');
    });
  addExamples(create, 'sandbar key create --name ci --scope read --expires 30d');
  const list = command
    .command('ls')
    .description('lists all keys')
    .option('--json', 'print the answer of the API')
    .action(async ({ json }) => {
      const keys = await connect().apiKeys.list().catch(explain);
      if (json) printJson({ api_keys: keys });
      else printRows(HEADINGS, keys.map(rowOf), 'No keys.');
    });
  addExamples(list, 'sandbar key ls');
  const remove = command
    .command('rm')
    .description('revokes keys, without asking')
    .argument('<key...>', `the keys, each ${BY_NAME}`, collectIds)
    .option('--json', 'print the ids as JSON')
    .action(async (names, { json }) => {
      const client = connect();
      const ids = await resolveIds(client, 'key', names).catch(explain);
      for (const id of ids) {
        await client.apiKeys.delete(id).catch(explain);
        if (!json) printLine(`${id}: revoked`);
      }
      if (json) printJson(ids.map((id) => ({ id })));
    });
  addExamples(remove, 'sandbar key rm ci');
}

function rowOf({ id, name, scope, prefix, created_at, last_used_at, expires_at }: ApiKey): string[] {
  return [id, name, scope, `${prefix}…`, created_at, last_used_at ?? 'never', expires_at ?? 'never'];
}

/** Throws an error that says where keys are managed, instead of ForbiddenError. Throws every other error unchanged. */
function explain(error: unknown): never {
  if (!(error instanceof ForbiddenError)) throw error;
  throw new CliError(
    EXIT.auth,
    'a key cannot manage keys; create and revoke keys in the dashboard, or make one for this computer with sandbar login',
  );
}
