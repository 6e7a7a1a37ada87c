// Writes lines to the stdin of a running job. The job of the API does not say whether its stdin is open. So an empty
// write at offset 0 finds out: its answer has the offset of the next byte, or is 409.
import { queryOptions, useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { type FormEvent, useState } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { Button } from '../../ui/button.tsx';
import type { JobId } from './job-queries.ts';
import styles from './jobs.module.css';

type Piece = { text: string; offset: number; close: boolean };

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
  const { data: stdin, error } = useQuery({ ...stdinQuery(id), enabled: isWanted });
  const [text, setText] = useState('');
  const write = useMutation({
    mutationFn: async (piece: Piece) => ({ piece, answer: await writeStdin(id, piece) }),
    onSuccess: ({ piece, answer }) => {
      queryClient.setQueryData(stdinQuery(id).queryKey, answer);
      // A command that does not read its stdin accepts only a part. The rest stays in the box.
      const taken = answer.next_offset - piece.offset;
      const rest = new TextDecoder().decode(new TextEncoder().encode(piece.text).subarray(taken));
      setText(rest.replace(/\n$/, ''));
    },
    // Another page may have written meanwhile, so read the next offset again.
    onError: () => queryClient.invalidateQueries(stdinQuery(id)),
  });
  if (!isWanted) {
    return (
      <div className={styles.actions}>
        <Button onClick={() => setWanted(true)}>Write to stdin</Button>
      </div>
    );
  }
  if (!stdin) return <p role={error ? 'alert' : 'status'}>{error?.message ?? 'Looking for the stdin of the job…'}</p>;
  if (stdin.closed) return <p role="status">The stdin of the job is closed.</p>;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (!write.isPending) write.mutate({ text: `${text}\n`, offset: stdin.next_offset, close: false });
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
        onClick={() => write.mutate({ text, offset: stdin.next_offset, close: true })}
        title="Sends what is in the box without a newline, and then the end of the input."
      >
        Close stdin
      </Button>
      {write.error ? (
        <span role="alert" className={styles.problem}>
          {write.error.message}
        </span>
      ) : null}
    </form>
  );
}
