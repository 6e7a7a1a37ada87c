// `sandbar admin host token`, `tokens` and `revoke-token`: the tokens with which other hosts join.
import { type Command, InvalidArgumentError } from '@commander-js/extra-typings';
import type { HostToken, NewHostToken } from '@sandbar/contract/admin.ts';
import { callAdmin } from '../admin-socket.ts';
import { parseDuration, parseId } from '../arguments.ts';
import { printJson, printLine, printNotice, printRows } from '../print.ts';

const PATH = '/admin/host-tokens';
/** As in the contract's HostTokenCreate. */
const EXPIRES_SEC = { min: 60, max: 86_400 };

export function defineHostTokens(command: Command): void {
  command
    .command('token')
    .description('makes a token with which one other host joins; it is shown once')
    .option('--expires <duration>', 'for how long it can be used, 1m to 1d (default: 1h)', parseExpires)
    .option('--json', 'print the answer as JSON')
    .action(async ({ expires, json }) => {
      const made = await callAdmin<NewHostToken>(PATH, expires === undefined ? {} : { expires_in_sec: expires });
      if (json) {
        printJson(made);
        return;
      }
      printNotice(`for one host, until ${made.expires_at}. On the new host, run:`);
      printLine(`sandbar host join --url ${made.url} --token ${made.token}`);
    });
  command
    .command('tokens')
    .description('lists the tokens with which hosts can still join')
    .option('--json', 'print the answer as JSON')
    .action(async ({ json }) => {
      const answer = await callAdmin<{ tokens: HostToken[] }>(PATH);
      if (json) printJson(answer);
      else {
        const rows = answer.tokens.map(({ id, created_at, expires_at }) => [id, created_at, expires_at]);
        printRows(['ID', 'CREATED', 'EXPIRES'], rows, 'No unused tokens.');
      }
    });
  command
    .command('revoke-token')
    .description('makes an unused token useless')
    .argument('<token>', 'the id of the token', parseId)
    .action(async (id) => {
      await callAdmin(`${PATH}/${encodeURIComponent(id)}/revoke`, {});
      printNotice(`no host can join with the token ${id} any more`);
    });
}

/** Throws InvalidArgumentError. */
function parseExpires(text: string): number {
  const sec = parseDuration(text);
  if (sec >= EXPIRES_SEC.min && sec <= EXPIRES_SEC.max) return sec;
  throw new InvalidArgumentError('It must be a duration from 1m to 1d.');
}
