// The terminals of the machine that this page does not show: those of the command line, of programs and of other pages.
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { Button } from '../../ui/button.tsx';
import { Time } from '../../ui/time.tsx';
import { endTerminal } from './end-terminal.ts';
import styles from './terminal.module.css';
import type { TerminalTabs } from './terminal-tabs.ts';

/** The service asks the machine for each answer, so this list is polled less often than others. */
const POLL_MS = 5_000;

export const terminalsKey = (machineId: string) => ['machines', machineId, 'terminals'];

export function OtherTerminals({ machine, tabs }: { machine: Schemas['Machine']; tabs: TerminalTabs }) {
  const { id } = machine;
  const queryClient = useQueryClient();
  const query = {
    queryKey: terminalsKey(id),
    queryFn: async () => (await unwrap(api.GET('/v1/machines/{id}/terminals', { params: { path: { id } } }))).terminals,
  };
  const { data = [], error } = useQuery({ ...query, refetchInterval: POLL_MS, enabled: machine.state === 'running' });
  const end = useMutation({
    mutationFn: (terminalId: string) => endTerminal(id, terminalId),
    onSettled: () => queryClient.invalidateQueries(query),
  });
  const own = new Set(tabs.getSnapshot().terminals.map((terminal) => terminal.id));
  const others = machine.state === 'running' ? data.filter((terminal) => !own.has(terminal.id)) : [];
  const problem = end.error ?? error;
  if (others.length === 0 && !problem) return null;
  return (
    <section className={styles.others} aria-label="Other terminals of this machine">
      <h2>Also open in this machine</h2>
      {problem ? <p role="alert">{problem.message}</p> : null}
      <ul>
        {others.map((terminal) => (
          <li key={terminal.id}>
            <code>
              <bdi>{terminal.command.join(' ')}</bdi>
            </code>
            <span className={styles.since}>
              opened <Time at={terminal.created_at} />, {terminal.connections} connected
            </span>
            <Button onClick={() => tabs.open(terminal.id)}>Join</Button>
            <Button
              kind="danger"
              busy={end.isPending && end.variables === terminal.id}
              onClick={() => {
                if (globalThis.confirm('End this terminal and the programs in it?')) end.mutate(terminal.id);
              }}
            >
              End
            </Button>
          </li>
        ))}
      </ul>
    </section>
  );
}
