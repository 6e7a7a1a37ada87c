// Downloads the usage or the ledger as CSV. The API returns CSV for the header `Accept: text/csv`, which a plain link
// cannot set.
import { problemOf, request } from '../api/raw-request.ts';
import { saveFile } from '../ui/save-file.ts';
import type { LedgerKind } from './kinds.ts';
import { type Range, toQuery } from './range.ts';

/** The API's largest page of the ledger. */
const LEDGER_PAGE = 1000;

/** Requests a page of CSV. `next`: the path of the page after it. */
async function readPage(path: string): Promise<{ text: string; next: string | undefined }> {
  const response = await request(path, { headers: { accept: 'text/csv' } });
  if (!response.ok) throw await problemOf(response);
  return {
    text: await response.text(),
    next: /^<([^>]+)>; rel="next"$/.exec(response.headers.get('link') ?? '')?.[1],
  };
}

const saveCsv = (parts: string[], name: string): void => saveFile(new Blob(parts, { type: 'text/csv' }), name);

export async function downloadUsage(range: Range, groupBy: string): Promise<void> {
  const query = new URLSearchParams({ ...toQuery(range), group_by: groupBy });
  const { text } = await readPage(`/v1/billing/usage?${query}`);
  saveCsv([text], `usage-${range.from}-${range.to}.csv`);
}

/** Downloads all pages of the ledger as one file. */
export async function downloadLedger(kind: LedgerKind | undefined): Promise<void> {
  const query = new URLSearchParams({ page_size: String(LEDGER_PAGE), ...(kind ? { kind } : {}) });
  const parts: string[] = [];
  let path: string | undefined = `/v1/billing/ledger?${query}`;
  while (path !== undefined) {
    const { text, next } = await readPage(path);
    // Each page repeats the header row.
    parts.push(parts.length === 0 ? text : text.slice(text.indexOf('\n') + 1));
    path = next;
  }
  saveCsv(parts, kind ? `ledger-${kind}.csv` : 'ledger.csv');
}
