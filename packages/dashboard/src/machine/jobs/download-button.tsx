// The button that saves a whole stream of a job as a file, with its progress.
import { useMutation } from '@tanstack/react-query';
import { useEffect, useRef, useState } from 'react';
import { Button } from '../../ui/button.tsx';
import { ProblemText } from '../../ui/problem.tsx';
import { downloadOutput } from './download.ts';
import type { Job, StreamName } from './job-queries.ts';
import styles from './jobs.module.css';

export function DownloadButton({ job, stream }: { job: Job; stream: StreamName }) {
  const [share, setShare] = useState(0);
  const abort = useRef<AbortController>(null);
  const download = useMutation({
    mutationFn: (controller: AbortController) =>
      downloadOutput({ machineId: job.machine_id, execId: job.id }, stream, controller.signal, setShare),
  });
  useEffect(() => () => abort.current?.abort(), []);
  const start = () => {
    setShare(0);
    abort.current = new AbortController();
    download.mutate(abort.current);
  };
  const isCancelled = abort.current?.signal.aborted === true;
  const reason = job.output_expired ? 'The output was dropped.' : undefined;
  return (
    <span className={styles.actions}>
      {download.isPending ? (
        <Button onClick={() => abort.current?.abort()}>Cancel download ({Math.floor(share * 100)} %)</Button>
      ) : (
        <Button reason={reason} onClick={start}>
          Download {stream}
        </Button>
      )}
      {download.error && !isCancelled ? (
        <span role="alert" className={styles.problem}>
          <ProblemText error={download.error} />
        </span>
      ) : null}
    </span>
  );
}
