// The jobs of a machine, newest first.
import { useInfiniteQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useMemo } from 'react';
import { Badge } from '../../ui/badge.tsx';
import { Button } from '../../ui/button.tsx';
import { formatBytes } from '../../ui/bytes.ts';
import { CodeSample } from '../../ui/code-sample.tsx';
import { columnsFor, DataTable } from '../../ui/data-table.tsx';
import type { Columns } from '../../ui/data-table-row.tsx';
import { ProblemText } from '../../ui/problem.tsx';
import { Time } from '../../ui/time.tsx';
import { type Job, jobsQuery } from './job-queries.ts';
import { formatDuration, runtimeMs, statusTone, statusWords } from './job-words.ts';
import styles from './jobs.module.css';
import { execSamples } from './samples.ts';

/**
 * `readAt`: when the API's answer arrived, in milliseconds since 1970. The time of a running job is counted until then.
 * A job that has ended has none, so its row stays the same object and is not drawn again.
 */
type Row = Job & { readAt?: number };

const column = columnsFor<Row>();
const COLUMNS: Columns<Row> = column.columns([
  column.accessor('status', {
    header: 'Status',
    cell: ({ row: { original } }) => <Badge tone={statusTone(original)}>{statusWords(original)}</Badge>,
  }),
  column.accessor('name', {
    header: 'Job',
    cell: ({ row: { original } }) => (
      <Link from="/machines/$machineId" to="." search={{ tab: 'jobs', job: original.id }}>
        <bdi className={styles.name}>{original.name || original.id}</bdi>
      </Link>
    ),
  }),
  column.accessor('created_at', { header: 'Started', cell: ({ getValue }) => <Time at={getValue()} /> }),
  column.display({
    id: 'took',
    header: 'Took',
    cell: ({ row: { original } }) => formatDuration(runtimeMs(original, original.readAt ?? 0)),
  }),
  column.display({ id: 'output', header: 'Output', cell: ({ row }) => outputWords(row.original) }),
]) as Columns<Row>;

function outputWords({ stdout_bytes, stderr_bytes, output_expired, truncated }: Job): string {
  if (output_expired) return 'dropped';
  return `${formatBytes(stdout_bytes + stderr_bytes)}${truncated ? ', truncated' : ''}`;
}

export function JobsList({ machineId }: { machineId: string }) {
  const query = useInfiniteQuery(jobsQuery(machineId));
  const { data, error, dataUpdatedAt } = query;
  const rows = useMemo(
    () => data?.pages.flatMap(({ execs }) => execs).map((job) => toRow(job, dataUpdatedAt)),
    [data, dataUpdatedAt],
  );
  if (!rows)
    return <p role={error ? 'alert' : 'status'}>{error ? <ProblemText error={error} /> : 'Loading the jobs…'}</p>;
  return (
    <>
      <DataTable label="Jobs" rows={rows} columns={COLUMNS} idOf={({ id }) => id} empty={<NoJobs id={machineId} />} />
      {query.hasNextPage ? (
        <div className={styles.older}>
          <Button busy={query.isFetchingNextPage} onClick={() => void query.fetchNextPage()}>
            Show older jobs
          </Button>
        </div>
      ) : null}
    </>
  );
}

const toRow = (job: Job, readAt: number): Row => (job.finished_at === null ? { ...job, readAt } : job);

function NoJobs({ id }: { id: string }) {
  return (
    <>
      <p>No command has run in this machine yet. Use the box above, or any of these:</p>
      <CodeSample samples={execSamples(location.origin, id)} />
    </>
  );
}
