// Writes lines to the stdin of a running job. The job of the API does not say whether its stdin is open. So an empty
// write at offset 0 finds out: its answer has the offset of the next byte, or is 409.
import { queryOptions, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { ApiProblem, api, type Schemas, unwrap } from '../../api/client.ts';
import { Button } from '../../ui/button.tsx';
import { ProblemText } from '../../ui/problem.tsx';
import type { JobId } from './job-queries.ts';
import styles from './jobs.module.css';
import { type Piece, restOf, retryOffset } from './stdin-piece.ts';

function writeStdin({ machineId, execId }: JobId, { text, offset, close }: Piece): Promise<Schemas['ExecStdin']> {
  return unwrap(
    api.PUT('/v1/machines/{id}/execs/{exec_id}/stdin', {
      params: { path: { id: machineId, exec_id: execId }, query: { offset, close } },
      headers: { 'content-type': 'application/octet-stream' },
      body: text,
      bodySerializer: (body) => new Blob([String(body)]),
    }),
  );
}

const stdinQuery = (id: JobId) =>
  queryOptions({
    queryKey: ['stdin', id.machineId, id.execId],
    queryFn: () => writeStdin(id, { text: '', offset: 0, close: false }),
    retry: false,
    staleTime: 0,
  });

export function StdinBox({ id }: { id: JobId }) {
  const queryClient = useQueryClient();
  const [isWanted, setWanted] = useState(false);
  const { data: stdin, error, refetch } = useQuery({ ...stdinQuery(id), enabled: isWanted });
  const [text, setText] = useState('');
  /** A piece that the job may have accepted in part, for example because the answer was lost. */
  const [open, setOpen] = useState<Piece>();
  const write = useMutation({
    mutationFn: (piece: Piece) => writeStdin(id, piece),
    onSuccess: (answer, piece) => {
      queryClient.setQueryData(stdinQuery(id).queryKey, answer);
      // A command that does not read its stdin accepts only a part.
      const rest = restOf(piece, answer.next_offset);
      setOpen(rest);
      if (rest) putBack(rest);
    },
    onError: (error, piece) => {
      putBack(piece);
      const isConflict = error instanceof ApiProblem && error.status === 409;
      setOpen(isConflict ? undefined : piece);
      // Another page may have written meanwhile, so read the next offset again.
      return isConflict ? queryClient.invalidateQueries(stdinQuery(id)) : undefined;
    },
  });
  const putBack = ({ text }: Piece) => setText((typed) => text.replace(/\n$/, '') + typed);
  const send = async (line: string, close: boolean) => {
    if (write.isPending) return;
    let offset = open ? retryOffset(open, line) : stdin?.next_offset;
    if (offset === undefined) {
      const read = await refetch();
      if (!read.isSuccess) return;
      offset = read.data.next_offset;
    }
    // The box is free for the next line at once. What is not written returns to it.
    setText((typed) => (typed === text ? '' : typed));
    write.mutate({ text: line, offset, close });
  };
  if (!isWanted) {
    return (
      <div className={styles.actions}>
        <Button onClick={() => setWanted(true)}>Write to stdin</Button>
      </div>
    );
  }
  if (!stdin)
    return (
      <p role={error ? 'alert' : 'status'}>
        {error ? <ProblemText error={error} /> : 'Looking for the stdin of the job…'}
      </p>
    );
  if (stdin.closed) return <p role="status">The stdin of the job is closed.</p>;
  const problem = write.error ?? error;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    void send(`${text}\n`, false);
  };
  return (
    <form onSubmit={submit} className={styles.actions} aria-label="Standard input">
      <input
        aria-label="A line for stdin"
        placeholder="A line for stdin"
        value={text}
        onChange={({ target }) => setText(target.value)}
      />
      <Button type="submit" busy={write.isPending}>
        Send line
      </Button>
      <Button
        busy={write.isPending}
        onClick={() => void send(text, true)}
        title="Sends what is in the box without a newline, and then the end of the input."
      >
        Close stdin
      </Button>
      {problem ? (
        <span role="alert" className={styles.problem}>
          <ProblemText error={problem} />
        </span>
      ) : null}
    </form>
  );
}
