// The page of one job: how it stands or ended, what can be done with it, and its output.
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { Badge } from '../../ui/badge.tsx';
import { ProblemText } from '../../ui/problem.tsx';
import { exactTime } from '../../ui/time.tsx';
import { JobActions } from './job-actions.tsx';
import { type Job, type JobId, jobQuery } from './job-queries.ts';
import { endSentence, formatDuration, runtimeMs, statusTone, statusWords } from './job-words.ts';
import styles from './jobs.module.css';
import { OutputPanel } from './output-panel.tsx';
import { StdinBox } from './stdin-box.tsx';

export function JobPage({ id }: { id: JobId }) {
  const { data: job, error, dataUpdatedAt } = useQuery(jobQuery(id));
  return (
    <>
      <p>
        <Link from="/machines/$machineId" to="." search={{ tab: 'jobs' }}>
          ← All jobs
        </Link>
      </p>
      {job ? (
        <>
          <header className={styles.head}>
            <h2>
              <bdi>{job.name || job.id}</bdi>
            </h2>
            <Badge tone={statusTone(job)}>{statusWords(job)}</Badge>
          </header>
          <Facts job={job} now={dataUpdatedAt} />
          <JobActions job={job} />
          <OutputPanel job={job} />
          {job.status === 'running' ? <StdinBox id={id} /> : null}
        </>
      ) : (
        <p role={error ? 'alert' : 'status'}>{error ? <ProblemText error={error} /> : 'Loading the job…'}</p>
      )}
    </>
  );
}

/** `now`: when the job was read, in milliseconds. */
function Facts({ job, now }: { job: Job; now: number }) {
  const end = endSentence(job);
  return (
    <>
      {end === undefined ? null : <p className={styles.end}>{end}</p>}
      <dl className={styles.facts}>
        <Fact label="Started">
          <When at={job.created_at} />
        </Fact>
        {job.finished_at === null ? null : (
          <Fact label="Finished">
            <When at={job.finished_at} />
          </Fact>
        )}
        <Fact label={job.finished_at === null ? 'Running for' : 'Took'}>{formatDuration(runtimeMs(job, now))}</Fact>
        <Fact label="Job">
          <code>{job.id}</code>
        </Fact>
      </dl>
    </>
  );
}

function Fact({ label, children }: { label: string; children: ReactNode }) {
  return (
    <div>
      <dt>{label}</dt>
      <dd>{children}</dd>
    </div>
  );
}

const When = ({ at }: { at: string }) => <time dateTime={at}>{exactTime(at)}</time>;
