// Cancels a job or sends it a signal. When the contract's state table says that an action changes nothing, its button
// is disabled and says why.
import { JOB_SIGNALS, JOB_STATE_TABLE, type JobSignal } from '@sandbar/contract/exec-states.ts';
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, unwrap } from '../../api/client.ts';
import { Button } from '../../ui/button.tsx';
import { ProblemText } from '../../ui/problem.tsx';
import { type Job, jobQuery, jobsQuery } from './job-queries.ts';
import { statusWords } from './job-words.ts';
import styles from './jobs.module.css';

/** The names of signals, and what programs usually do with them. */
const MEANINGS: Record<JobSignal, string> = {
  INT: 'interrupt, as Ctrl+C',
  TERM: 'ask to end',
  HUP: 'hang up or reload',
  KILL: 'end at once',
  USR1: 'up to the program',
  USR2: 'up to the program',
  QUIT: 'end with a core dump',
};

export function JobActions({ job }: { job: Job }) {
  const [signal, setSignal] = useState<JobSignal>('INT');
  const queryClient = useQueryClient();
  const params = { path: { id: job.machine_id, exec_id: job.id } };
  const onSuccess = (changed: Job) => {
    queryClient.setQueryData(jobQuery({ machineId: job.machine_id, execId: job.id }).queryKey, changed);
    return queryClient.invalidateQueries({ queryKey: jobsQuery(job.machine_id).queryKey });
  };
  const cancel = useMutation({
    mutationFn: () => unwrap(api.POST('/v1/machines/{id}/execs/{exec_id}/cancel', { params })),
    onSuccess,
  });
  const send = useMutation({
    mutationFn: () => unwrap(api.POST('/v1/machines/{id}/execs/{exec_id}/signal', { params, body: { signal } })),
    onSuccess,
  });
  const rule = JOB_STATE_TABLE[job.status];
  const ended = `The job has ended already (${statusWords(job)}).`;
  const error = cancel.error ?? send.error;
  return (
    <div role="toolbar" aria-label="Actions of the job" className={styles.actions}>
      <Button
        kind="danger"
        busy={cancel.isPending}
        reason={rule.cancel === 'allowed' ? undefined : ended}
        title="Ends every process of the job: TERM, and KILL after 5 seconds."
        onClick={() => cancel.mutate()}
      >
        Cancel job
      </Button>
      <select
        aria-label="Signal"
        value={signal}
        onChange={({ target }) => setSignal(JOB_SIGNALS.find((name) => name === target.value) ?? 'INT')}
      >
        {JOB_SIGNALS.map((name) => (
          <option key={name} value={name}>
            SIG{name}: {MEANINGS[name]}
          </option>
        ))}
      </select>
      <Button
        busy={send.isPending}
        reason={rule.signal === 'allowed' ? undefined : ended}
        title="Sends the signal to the first process of the job, which is the shell for a command."
        onClick={() => send.mutate()}
      >
        Send signal
      </Button>
      {error ? (
        <span role="alert" className={styles.problem}>
          <ProblemText error={error} />
        </span>
      ) : null}
    </div>
  );
}
