// The ledger: everything that changed the balance, newest first. A charge opens to show its lines.
import { useInfiniteQuery } from '@tanstack/react-query';
import { Fragment } from 'react';
import type { Schemas } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { Empty } from '../ui/empty.tsx';
import { Field } from '../ui/field.tsx';
import { Problem } from '../ui/problem.tsx';
import { Time } from '../ui/time.tsx';
import styles from './billing.module.css';
import { ChargeLines } from './charge-lines.tsx';
import { downloadLedger } from './csv.ts';
import { CsvButton } from './csv-button.tsx';
import { LEDGER_KINDS, LEDGER_LABELS, type LedgerKind } from './kinds.ts';
import { formatEurCell } from './money.ts';
import { ledgerQuery } from './queries.ts';
import { ledgerSamples } from './samples.ts';
import { Scroller } from './scroller.tsx';

type Entry = Schemas['LedgerEntry'];
type Props = {
  kind: LedgerKind | undefined;
  /** The entry whose lines are shown. */
  open: string | undefined;
  onKind: (kind: LedgerKind | undefined) => void;
  onOpen: (id: string | undefined) => void;
};

export function LedgerSection({ kind, open, onKind, onOpen }: Props) {
  return (
    <section className={styles.card} aria-labelledby="ledger">
      <div className={styles.ledgerHead}>
        <h2 id="ledger">Ledger</h2>
        <Field label="Kind">
          {(control) => (
            <select
              {...control}
              value={kind ?? ''}
              onChange={({ target }) => onKind(LEDGER_KINDS.find((known) => known === target.value))}
            >
              <option value="">Every kind</option>
              {LEDGER_KINDS.map((known) => (
                <option key={known} value={known}>
                  {LEDGER_LABELS[known]}
                </option>
              ))}
            </select>
          )}
        </Field>
      </div>
      <Entries kind={kind} open={open} onOpen={onOpen} />
    </section>
  );
}

function Entries({ kind, open, onOpen }: Pick<Props, 'kind' | 'open' | 'onOpen'>) {
  const { data, error, refetch, hasNextPage, fetchNextPage, isFetchingNextPage } = useInfiniteQuery(ledgerQuery(kind));
  const entries = data?.pages.flatMap((page) => page.entries) ?? [];
  if (error && !data) {
    return <Problem title="The ledger could not be loaded." error={error} onRetry={() => void refetch()} />;
  }
  if (!data) return <p role="status">Loading the ledger…</p>;
  if (entries.length === 0) {
    if (kind) return <p className={styles.quiet}>The ledger has no entry of this kind.</p>;
    return <Empty samples={ledgerSamples(location.origin)}>The ledger has no entries yet.</Empty>;
  }
  return (
    <>
      <Scroller label="Entries of the ledger">
        <table className={styles.table}>
          <thead>
            <tr>
              <th>When</th>
              <th>Kind</th>
              <th className={styles.number}>Amount</th>
              <th className={styles.number}>Balance after</th>
              <th>Note</th>
            </tr>
          </thead>
          <tbody>
            {entries.map((entry) => (
              <Fragment key={entry.id}>
                <EntryRow entry={entry} isOpen={entry.id === open} onOpen={onOpen} />
                {entry.id === open && entry.kind === 'charge' ? (
                  <tr>
                    <td colSpan={5}>
                      <div className={styles.lines}>
                        <ChargeLines id={entry.id} />
                      </div>
                    </td>
                  </tr>
                ) : null}
              </Fragment>
            ))}
          </tbody>
        </table>
      </Scroller>
      <div className={styles.foot}>
        {hasNextPage ? (
          <Button busy={isFetchingNextPage} onClick={() => void fetchNextPage()}>
            Show older entries
          </Button>
        ) : (
          <span className={styles.quiet}>These are all entries.</span>
        )}
        <CsvButton label="the ledger" download={() => downloadLedger(kind)} />
      </div>
    </>
  );
}

type RowProps = { entry: Entry; isOpen: boolean; onOpen: Props['onOpen'] };

function EntryRow({ entry, isOpen, onOpen }: RowProps) {
  return (
    <tr>
      <td>
        <Time at={entry.created_at} />
      </td>
      <td>
        {entry.kind === 'charge' ? (
          <button
            type="button"
            className={styles.link}
            aria-expanded={isOpen}
            onClick={() => onOpen(isOpen ? undefined : entry.id)}
          >
            {LEDGER_LABELS[entry.kind]}
          </button>
        ) : (
          LEDGER_LABELS[entry.kind]
        )}
      </td>
      <td className={styles.number}>{formatEurCell(entry.amount)}</td>
      <td className={styles.number}>{formatEurCell(entry.balance)}</td>
      <td>
        <bdi>{entry.note}</bdi>{' '}
        {entry.reference === null ? null : <bdi className={styles.quiet}>{entry.reference}</bdi>}
      </td>
    </tr>
  );
}
