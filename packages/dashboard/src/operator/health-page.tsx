// The health of the service: what the audit finds (as `sandbar doctor` does) and which operations failed.
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { AdminSchemas } from '../api/admin-client.ts';
import { Button } from '../ui/button.tsx';
import { CodeSample } from '../ui/code-sample.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { Problem } from '../ui/problem.tsx';
import { Time } from '../ui/time.tsx';
import styles from './operator.module.css';
import { auditQuery, failedOperationsQuery } from './queries.ts';

type Audit = AdminSchemas['Audit'];
type Operation = AdminSchemas['FailedOperationList']['operations'][number];

export function HealthPage() {
  return (
    <>
      <PageHead title="Health" />
      <AuditCard />
      <OperationsCard />
    </>
  );
}

function AuditCard() {
  const { data: audit, error, isFetching, refetch, dataUpdatedAt } = useQuery(auditQuery);
  return (
    <section className={styles.card} aria-labelledby="audit">
      <header className={styles.part}>
        <h2 id="audit">Audit</h2>
        <Button busy={isFetching} onClick={() => void refetch()}>
          {isFetching ? 'Running…' : 'Run again'}
        </Button>
        {audit ? (
          <span className={styles.quiet}>
            Run <Time at={new Date(dataUpdatedAt).toISOString()} />
          </span>
        ) : null}
      </header>
      {error ? <Problem title="The audit failed." error={error} /> : null}
      {!audit && isFetching ? <p role="status">Comparing the database with the hosts. This takes seconds…</p> : null}
      {audit ? <Findings audit={audit} /> : null}
    </section>
  );
}

function Findings({ audit: { findings, not_looked_at, looked_at } }: { audit: Audit }) {
  const seen = Object.entries(looked_at).map(([what, count]) => `${what} ${count}`);
  return (
    <>
      <p role="status">{findings.length === 0 ? 'Everything is in order.' : `Findings: ${findings.length}`}</p>
      <p className={styles.quiet}>Looked at: {seen.join(', ')}.</p>
      {not_looked_at.map(({ host_id, why }) => (
        <p key={host_id} className={styles.bad}>
          Host {host_id} was not looked at: {why}.
        </p>
      ))}
      {findings.length === 0 ? null : (
        <>
          <ul className={styles.findings}>
            {findings.map(({ area, subject, detail, fix }) => (
              <li key={`${area}/${subject}/${detail}`}>
                <strong>
                  {area} <bdi>{subject}</bdi>
                </strong>
                : <bdi>{detail}</bdi>
                <div className={styles.quiet}>{fix === null ? 'No repair is safe.' : `The repair: ${fix}.`}</div>
              </li>
            ))}
          </ul>
          <p>To make the safe repairs, run this on the computer of the service:</p>
          <CodeSample samples={[{ label: 'CLI', code: 'sandbar doctor --fix' }]} />
        </>
      )}
    </>
  );
}

function OperationsCard() {
  const { data: operations, error, refetch } = useQuery(failedOperationsQuery);
  return (
    <section className={styles.card} aria-labelledby="operations">
      <h2 id="operations">Failed operations</h2>
      <p className={styles.quiet}>Of the last hour, and those that are tried again.</p>
      {error && !operations ? (
        <Problem title="The operations could not be loaded." error={error} onRetry={() => void refetch()} />
      ) : null}
      {!error && !operations ? <p role="status">Loading operations…</p> : null}
      {operations?.length === 0 ? <p>No operation failed.</p> : null}
      {operations && operations.length > 0 ? (
        <ul className={styles.findings}>
          {operations.map((operation) => (
            <OperationItem key={operation.id} operation={operation} />
          ))}
        </ul>
      ) : null}
    </section>
  );
}

function OperationItem({ operation }: { operation: Operation }) {
  const { kind, email, account_id, attempts, code, error, created_at, finished_at } = operation;
  const subject = operation.machine_id ?? operation.volume_id ?? operation.snapshot_id;
  return (
    <li>
      <strong>{kind.replace('_', ' ')}</strong> of <code>{subject}</code>,{' '}
      <Link to="/accounts" search={{ account: account_id }}>
        <bdi>{email}</bdi>
      </Link>
      , <Time at={created_at} />: <bdi>{error}</bdi>
      <div className={styles.quiet}>
        {code ? `${code}, ` : ''}
        {attempts === 1 ? '1 attempt' : `${attempts} attempts`},{' '}
        {finished_at === null ? 'will be tried again' : 'given up'}
      </div>
    </li>
  );
}
