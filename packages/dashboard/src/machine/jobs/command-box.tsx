// Starts a job: a command for /bin/sh -c. Enter runs it, Shift+Enter begins a new line, and the arrow keys bring back
// the last commands.
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type FormEvent, type KeyboardEvent, useId, useState } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { reasonAgainst } from '../../machines/actions.ts';
import { Button } from '../../ui/button.tsx';
import { ProblemText } from '../../ui/problem.tsx';
import { useSingle } from '../../ui/use-single.ts';
import styles from './command-box.module.css';
import { addCommand, type Recall, recall } from './command-history.ts';
import { CommandOptions, optionsOf } from './command-options.tsx';
import { jobQuery, jobsQuery } from './job-queries.ts';

type Start = Omit<Schemas['ExecCreate'], 'argv'> & { command: string };

/** The history is in the query cache, because that is cleared at sign-out. */
const historyQuery = (machineId: string) => ({
  queryKey: ['commands', machineId],
  queryFn: (): readonly string[] => [],
  initialData: [] as readonly string[],
  staleTime: Number.POSITIVE_INFINITY,
  gcTime: Number.POSITIVE_INFINITY,
  enabled: false,
});

export function CommandBox({ machine }: { machine: Schemas['Machine'] }) {
  const id = useId();
  const queryClient = useQueryClient();
  const navigate = useNavigate({ from: '/machines/$machineId' });
  const { data: commands } = useQuery(historyQuery(machine.id));
  const [text, setText] = useState('');
  const [recalled, setRecalled] = useState<Recall>({ at: Number.POSITIVE_INFINITY, draft: '' });
  const start = useSingle({
    mutationFn: (body: Start) =>
      unwrap(api.POST('/v1/machines/{id}/execs', { params: { path: { id: machine.id } }, body })),
    onSuccess: async (job, { command }) => {
      queryClient.setQueryData(historyQuery(machine.id).queryKey, addCommand(commands, command));
      queryClient.setQueryData(jobQuery({ machineId: machine.id, execId: job.id }).queryKey, job);
      // What the person has typed meanwhile stays.
      setText((present) => (present === command ? '' : present));
      setRecalled({ at: Number.POSITIVE_INFINITY, draft: '' });
      void queryClient.invalidateQueries({ queryKey: jobsQuery(machine.id).queryKey });
      await navigate({ to: '.', search: { tab: 'jobs', job: job.id } });
    },
  });
  const reason = reasonAgainst(machine, 'exec');
  const submit = (event: FormEvent<HTMLFormElement>) => {
    event.preventDefault();
    if (reason !== undefined || text.trim() === '') return;
    start.run({ ...optionsOf(new FormData(event.currentTarget)), command: text, name: nameOf(text) });
  };
  const onKeyDown = (event: KeyboardEvent<HTMLTextAreaElement>) => {
    if (event.nativeEvent.isComposing || event.shiftKey || event.ctrlKey || event.altKey || event.metaKey) return;
    const box = event.currentTarget;
    if (event.key === 'Enter') {
      event.preventDefault();
      box.form?.requestSubmit();
      return;
    }
    const step = stepOf(event.key, box);
    const next =
      step && recall(commands, recalled.at > commands.length ? { at: commands.length, draft: text } : recalled, step);
    if (!next) return;
    event.preventDefault();
    setRecalled(next);
    setText(next.text);
  };
  return (
    <form onSubmit={submit} className={styles.box} aria-label="Run a command">
      <label htmlFor={id}>Command</label>
      <div className={styles.row}>
        <textarea
          id={id}
          className={styles.command}
          rows={Math.min(8, text.split('\n').length)}
          value={text}
          spellCheck={false}
          autoCapitalize="off"
          autoComplete="off"
          placeholder="uname -a"
          aria-describedby={`${id}-hint`}
          onChange={({ target }) => {
            setText(target.value);
            setRecalled({ at: Number.POSITIVE_INFINITY, draft: '' });
          }}
          onKeyDown={onKeyDown}
        />
        <Button type="submit" kind="primary" busy={start.isPending} reason={reason}>
          Run
        </Button>
      </div>
      <p id={`${id}-hint`} className={styles.hint}>
        Runs by <code>/bin/sh -c</code>. Enter runs, Shift+Enter begins a new line, ↑ and ↓ bring back commands. The
        first line becomes the name of the job.
      </p>
      <CommandOptions />
      {start.error ? (
        <p role="alert" className={styles.problem}>
          <ProblemText error={start.error} />
        </p>
      ) : null}
    </form>
  );
}

/**
 * An arrow key recalls a command only from the first or last line, so that it still moves the cursor in a command of
 * several lines.
 */
function stepOf(key: string, box: HTMLTextAreaElement): -1 | 1 | undefined {
  if (box.selectionStart !== box.selectionEnd) return undefined;
  if (key === 'ArrowUp' && !box.value.slice(0, box.selectionStart).includes('\n')) return -1;
  if (key === 'ArrowDown' && !box.value.slice(box.selectionEnd).includes('\n')) return 1;
  return undefined;
}

/** The API does not store the command of a job, so its first line becomes the name that the list shows. */
const nameOf = (command: string): string =>
  [...(command.trim().split('\n')[0] ?? '')].slice(0, EXEC_BOUNDS.nameLength).join('');
