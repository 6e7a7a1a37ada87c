// Shown in place of a page that failed to load or to render. When the service does not answer, it retries until the
// page loads.
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { type ErrorComponentProps, useRouter } from '@tanstack/react-router';
import { useEffect } from 'react';
import { ApiProblem } from '../api/client.ts';
import { POLL_MS } from '../api/query-client.ts';
import { accountQuery } from '../session/session.ts';
import { Button } from '../ui/button.tsx';
import { isMissingCode } from '../ui/lazy-part.ts';
import { ProblemText } from '../ui/problem.tsx';
import { useTitle } from '../ui/use-title.ts';
import styles from './failed-page.module.css';

/** A page that failed inside the frame. */
export function FailedPage({ error: thrown, reset }: ErrorComponentProps<unknown>) {
  const error = thrown instanceof Error ? thrown : new Error('The page failed.', { cause: thrown });
  useTitle('Failed');
  return (
    <section className={styles.page}>
      {error instanceof ApiProblem ? <Waiting error={error} reset={reset} /> : <Broken error={error} />}
      <Button onClick={() => location.reload()}>Load the page again</Button>
    </section>
  );
}

/** The frame itself failed, so there is no other landmark. */
export function FailedFrame(props: ErrorComponentProps<unknown>) {
  return (
    <main>
      <FailedPage {...props} />
    </main>
  );
}

function Waiting({ error, reset }: { error: ApiProblem; reset: () => void }) {
  const queryClient = useQueryClient();
  const router = useRouter();
  const restart = async () => {
    await queryClient.fetchQuery({ ...accountQuery, retry: false });
    reset();
    await router.invalidate();
    return true;
  };
  useQuery({ queryKey: ['restart'], queryFn: restart, retry: false, gcTime: 0, refetchInterval: POLL_MS });
  return (
    <>
      <h1>Waiting for the service</h1>
      <p role="alert">
        <ProblemText error={error} />
      </p>
      <p>The page loads by itself when the service answers again.</p>
    </>
  );
}

function Broken({ error }: { error: Error }) {
  const queryClient = useQueryClient();
  // A cached answer may be what made the page fail, so the next visit must ask again.
  useEffect(() => queryClient.removeQueries({ type: 'inactive' }), [queryClient]);
  if (isMissingCode(error)) {
    return (
      <>
        <h1>The dashboard was updated</h1>
        <p role="alert">A part of this page is no longer on the server.</p>
      </>
    );
  }
  return (
    <>
      <h1>This page failed</h1>
      <p role="alert">This is an error of the dashboard.</p>
      <code className={styles.detail}>{error.message}</code>
    </>
  );
}
