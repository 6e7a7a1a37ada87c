// `sandbar admin invoice`: what happened to the wallet of an account in one month, on one page.
import type { Command } from '@commander-js/extra-typings';
import type { Invoice } from '@sandbar/contract/admin-billing.ts';
import type { LedgerKind, UsageKind } from '@sandbar/contract/billing.ts';
import { callAdmin } from '../admin-socket.ts';
import { parseId } from '../arguments.ts';
import { formatCents, roundToCents, toCents, toMicros } from '../cents.ts';
import { printJson, printLine } from '../print.ts';
import { pathOf } from './admin-path.ts';

const MONEY: Record<LedgerKind, string> = {
  'top-up': 'Top-ups',
  bonus: 'Bonuses',
  charge: 'Charges',
  refund: 'Refunds',
  'refund-reversal': 'Refunds that failed',
  dispute: 'Disputed payments',
  'dispute-reversal': 'Disputes that were won',
  correction: 'Corrections',
};

const USE: Record<UsageKind, string> = {
  vcpu: 'vCPU, hours',
  memory: 'Memory, GiB hours',
  storage: 'Storage, GiB hours',
  snapshot: 'Snapshots, GiB hours',
};

const WIDTHS = [26, 20, 14, 16] as const;

export function defineInvoice(command: Command): void {
  command
    .argument('<account>', 'the account', parseId)
    .argument('<month>', 'the month in UTC, such as 2026-10', parseId)
    .option('--json', 'print the answer as JSON, with amounts to six decimals')
    .action(async (account, month, { json }) => {
      const query = new URLSearchParams({ month });
      const invoice = await callAdmin<Invoice>(`${pathOf(account)}/invoice?${query}`);
      if (json) printJson(invoice);
      else printInvoice(invoice);
    });
}

function printInvoice(invoice: Invoice): void {
  const { opening, closing, money, use } = invoice;
  const [first, last] = [toMicros(opening), toMicros(closing)];
  const cents = roundToCents(
    first,
    [...money, ...use].map(({ amount }) => toMicros(amount)),
    last,
  ).map(formatCents);
  const moneyRows = money.map(({ kind, entries }) => [MONEY[kind], `${entries}`, '']);
  const useRows = use.map(({ kind, quantity, price }) => [USE[kind], quantity, price]);
  printLine(`Account  ${invoice.account_id}  ${invoice.email}`);
  printLine(`Month    ${invoice.month} (UTC)${invoice.is_final ? '' : ', which is not over yet'}`);
  printLine('');
  printRow(['', 'QUANTITY', 'PRICE', `AMOUNT ${invoice.currency}`]);
  printRow(['Balance at the beginning', '', '', formatCents(toCents(first))]);
  [...moneyRows, ...useRows].forEach((row, index) => {
    printRow([...row, cents[index] ?? '']);
  });
  printRow([invoice.is_final ? 'Balance at the end' : 'Balance now', '', '', formatCents(toCents(last))]);
}

/** Prints a label and right-aligned numbers. */
function printRow([label = '', ...numbers]: readonly string[]): void {
  const [labelWidth, ...widths] = WIDTHS;
  printLine(label.padEnd(labelWidth) + numbers.map((text, index) => text.padStart(widths[index] ?? 0)).join(''));
}
