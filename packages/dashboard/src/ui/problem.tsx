// Explains why a request failed and what the person can do: a full quota links to the quotas, an empty wallet to the
// billing page, too many requests say when to try again. Everything else shows the API's sentence and the request id.
import { Link } from '@tanstack/react-router';
import { ApiProblem } from '../api/client.ts';
import { Button } from './button.tsx';
import styles from './problem.module.css';

const QUOTAS: Record<string, string> = {
  machines: 'machines',
  vcpus: 'vCPUs',
  memory_mb: 'memory',
  storage_gb: 'storage',
  volumes: 'volumes',
};

/** The quota that a `quota_exceeded` names in its detail; undefined for a limit that is not one of the five quotas. */
const quotaOf = (detail: string): string | undefined => /^The quota (\w+) /.exec(detail)?.[1];

/** The reason as a line of text, for a form or a list. */
export function ProblemText({ error }: { error: Error }) {
  if (!(error instanceof ApiProblem)) return <>{error.message || 'The page failed.'}</>;
  if (error.code === 'quota_exceeded') return <QuotaExceeded detail={error.message} />;
  if (error.status === 402) {
    return (
      <>
        {error.message}{' '}
        <Link to="/billing" search={{}}>
          Top up the balance
        </Link>
      </>
    );
  }
  if (error.status === 507) return <>{error.message} Delete files in the machine to make room.</>;
  if (error.status === 429) return <>{`Too many requests. Try again in ${error.retryAfterSec ?? 60} s.`}</>;
  return (
    <>
      {error.message}
      {error.requestId === null ? null : (
        <>
          {' '}
          <small className={styles.request}>
            Request <code>{error.requestId}</code>
          </small>
        </>
      )}
    </>
  );
}

function QuotaExceeded({ detail }: { detail: string }) {
  const quota = quotaOf(detail);
  return (
    <>
      {detail}{' '}
      <Link to="/quotas" search={{}} {...(quota === undefined ? {} : { hash: quota })}>
        {quota === undefined ? 'See the quotas' : `See the quota of ${QUOTAS[quota] ?? quota}`}
      </Link>
    </>
  );
}

/** A box in place of content that could not be loaded, or above a form that was refused. */
export function Problem({ title, error, onRetry }: { title: string; error: Error; onRetry?: () => void }) {
  return (
    <div role="alert" className={styles.box}>
      <p>
        <strong>{title}</strong>
      </p>
      <p>
        <ProblemText error={error} />
      </p>
      {onRetry ? <Button onClick={onRetry}>Try again</Button> : null}
    </div>
  );
}
