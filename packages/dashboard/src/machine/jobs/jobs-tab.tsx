// The tab "jobs" of a machine: a box for commands, and below it the list of jobs or the job that the URL names.
import { getRouteApi } from '@tanstack/react-router';
import type { Schemas } from '../../api/client.ts';
import { CommandBox } from './command-box.tsx';
import { JobPage } from './job-page.tsx';
import { JobsList } from './jobs-list.tsx';

const route = getRouteApi('/signed-in/machines/$machineId');

export function JobsTab({ machine }: { machine: Schemas['Machine'] }) {
  const { job } = route.useSearch();
  return (
    <>
      <CommandBox machine={machine} />
      {job === undefined ? (
        <JobsList machineId={machine.id} />
      ) : (
        <JobPage key={job} id={{ machineId: machine.id, execId: job }} />
      )}
    </>
  );
}
