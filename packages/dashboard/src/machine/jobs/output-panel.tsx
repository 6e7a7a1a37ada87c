// The output of a job: the choice of the stream, notes about missing output, the lines, and the download.
import { useQueryClient } from '@tanstack/react-query';
import { useState, useSyncExternalStore } from 'react';
import { formatBytes } from '../../ui/bytes.ts';
import { DownloadButton } from './download-button.tsx';
import { type Job, jobsQuery, type StreamName } from './job-queries.ts';
import styles from './jobs.module.css';
import { type FeedState, OutputFeed } from './output-feed.ts';
import { OutputView } from './output-view.tsx';

const STREAMS: readonly StreamName[] = ['stdout', 'stderr'];

export function OutputPanel({ job }: { job: Job }) {
  const [chosen, setChosen] = useState<StreamName>();
  // Only one stream is read at a time, because each takes one of the browser's six connections.
  const stream = chosen ?? (job.stdout_bytes === 0 && job.stderr_bytes > 0 ? 'stderr' : 'stdout');
  return (
    <section aria-label="Output">
      <div className={styles.bar}>
        <fieldset className={styles.streams}>
          <legend className={styles.hidden}>Stream</legend>
          {STREAMS.map((name) => (
            <label key={name}>
              <input type="radio" name="stream" checked={name === stream} onChange={() => setChosen(name)} />
              {name} <span className={styles.quiet}>{formatBytes(job[`${name}_bytes`])}</span>
            </label>
          ))}
        </fieldset>
        <DownloadButton key={stream} job={job} stream={stream} />
      </div>
      {job.truncated ? (
        <p className={styles.note}>
          The job wrote more than the service keeps of a stream. What came after the limit was dropped.
        </p>
      ) : null}
      {job.output_expired ? (
        <p className={styles.note}>
          The output was dropped: a machine keeps the output of its newest jobs only, up to a limit of bytes.
        </p>
      ) : (
        <Live key={stream} job={job} stream={stream} />
      )}
    </section>
  );
}

function Live({ job, stream }: { job: Job; stream: StreamName }) {
  const queryClient = useQueryClient();
  const [feed] = useState(() => {
    const id = { machineId: job.machine_id, execId: job.id };
    // The query key of the list is a prefix of the keys of all job queries.
    const refresh = () => void queryClient.invalidateQueries({ queryKey: jobsQuery(job.machine_id).queryKey });
    return new OutputFeed(id, stream, job[`${stream}_bytes`], refresh);
  });
  const state = useSyncExternalStore(feed.subscribe, feed.state);
  const isEmpty = state.lines.length === 0;
  return (
    <>
      <Missing state={state} />
      {isEmpty ? null : <OutputView label={`Text of ${stream}`} lines={state.lines} busy={state.status === 'live'} />}
      <p role="status" className={styles.quiet}>
        {feedWords(state, stream)}
      </p>
    </>
  );
}

function Missing({ state: { lines, skippedBytes, droppedLines } }: { state: FeedState }) {
  if (skippedBytes === 0 && droppedLines === 0) return null;
  const what =
    droppedLines > 0
      ? `Only the last ${lines.length.toLocaleString('en')} lines are shown.`
      : `The first ${formatBytes(skippedBytes)} are not shown.`;
  return <p className={styles.note}>{what} The download has everything.</p>;
}

function feedWords({ status, lines, problem }: FeedState, stream: StreamName): string {
  if (status === 'failed') return problem?.message ?? 'The output cannot be read.';
  if (status === 'connecting') return problem ? `${problem.message} Trying again…` : 'Connecting to the output…';
  if (status === 'live') return lines.length === 0 ? `Nothing on ${stream} yet.` : 'Live: new output appears here.';
  return lines.length === 0 ? `The job wrote nothing to ${stream}.` : `End of ${stream}.`;
}
