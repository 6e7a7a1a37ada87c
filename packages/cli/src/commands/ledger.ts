// `sandbar ledger`: prints the entries of the wallet's ledger, newest first, or the lines of one entry.
import { type Command, Option } from '@commander-js/extra-typings';
import { LEDGER_KINDS, type LedgerDetails, type LedgerEntry, type LedgerList } from '@sandbar/contract/billing.ts';
import type { LedgerFilter } from '@sandbar/sdk/billing.ts';
import { onlyGiven, parseId, parseInteger, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { addExamples } from '../examples.ts';
import { printJson, printLine, printRows, printTable } from '../print.ts';

const DEFAULT_LIMIT = 50;

export function defineLedger(command: Command): void {
  const defined = command
    .argument('[entry]', 'the id of an entry, to print its lines', parseId)
    .addOption(new Option('--kind <kind>', 'only entries of this kind').choices(LEDGER_KINDS))
    .option('--from <time>', 'only entries from this time on, such as 2026-01-31T12:00:00Z')
    .option('--to <time>', 'only entries up to this time')
    .option('--limit <n>', `how many entries (${DEFAULT_LIMIT})`, parseInteger)
    .option('--json', 'print the answer of the API')
    .action(async (id, { limit, json, ...filter }) => {
      if (id !== undefined) {
        if (limit !== undefined || Object.keys(filter).length > 0) {
          throw new UsageError(
            '--kind, --from, --to and --limit select entries of the list; omit them with the id of an entry',
          );
        }
        const entry = await connect().billing.entry(id);
        if (json) printJson(entry);
        else printDetails(entry);
        return;
      }
      const found = await readLedger(onlyGiven(filter), limit ?? DEFAULT_LIMIT);
      if (json) printJson(found);
      else printEntries(found.entries);
    });
  addExamples(defined, 'sandbar ledger --kind top-up', 'sandbar ledger 019b2d6c-5f0a-7c3e-9a41-0d3f5b8e7a20');
}

/** Reads pages until there are `limit` entries, and returns them as one page with the last `next_cursor`. */
async function readLedger(filter: LedgerFilter, limit: number): Promise<LedgerList> {
  const { billing } = connect();
  const entries: LedgerEntry[] = [];
  let cursor: string | undefined;
  while (entries.length < limit && cursor !== '') {
    const page: LedgerList = await billing.ledgerPage(filter, { pageSize: limit - entries.length, cursor });
    entries.push(...page.entries);
    cursor = page.next_cursor;
  }
  return { entries, next_cursor: cursor ?? '' };
}

function printEntries(entries: readonly LedgerEntry[]): void {
  const rows = entries.map((entry) => [
    entry.created_at,
    entry.kind,
    entry.amount,
    entry.balance,
    entry.id,
    textOf(entry),
  ]);
  printRows(['TIME', 'KIND', 'EUR', 'BALANCE', 'ID', 'FOR'], rows, 'No entries.');
}

function printDetails(entry: LedgerDetails): void {
  printEntries([entry]);
  if (entry.lines.length === 0) return;
  printLine('');
  const rows = entry.lines.map((line) => [
    ...[line.resource_kind, line.resource_id, line.kind, line.from, line.to],
    ...[line.quantity, line.unit, line.price, line.amount],
  ]);
  printTable(['RESOURCE', 'ID', 'KIND', 'FROM', 'TO', 'QUANTITY', 'UNIT', 'PRICE', 'EUR'], rows);
}

/** Describes the purpose of an entry: the interval of a charge, or the note and the reference. */
function textOf({ charged_from, charged_to, note, reference }: LedgerEntry): string {
  if (charged_to !== null) return `use from ${charged_from} to ${charged_to}`;
  return [note, reference].filter(Boolean).join(', ') || '-';
}
