// The page of one machine. Each tab is loaded when it is opened.
import { useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { Suspense } from 'react';
import { StateBadge } from '../machines/state-badge.tsx';
import { lazyPart } from '../ui/lazy-part.ts';
import { useTitle } from '../ui/use-title.ts';
import { isolate } from '../ui/visible-text.ts';
import styles from './machine.module.css';
import { machineQuery } from './machine-query.ts';
import { MACHINE_TABS, type MachineTab } from './search.ts';

const route = getRouteApi('/signed-in/machines/$machineId');

const TABS = {
  overview: lazyPart(() => import('./overview/overview-tab.tsx'), 'OverviewTab'),
  terminal: lazyPart(() => import('./terminal/terminal-tab.tsx'), 'TerminalTab'),
  jobs: lazyPart(() => import('./jobs/jobs-tab.tsx'), 'JobsTab'),
  files: lazyPart(() => import('./files/files-tab.tsx'), 'FilesTab'),
  ports: lazyPart(() => import('./ports/ports-tab.tsx'), 'PortsTab'),
  volumes: lazyPart(() => import('./volumes/volumes-tab.tsx'), 'VolumesTab'),
  snapshots: lazyPart(() => import('./snapshots/snapshots-tab.tsx'), 'SnapshotsTab'),
  activity: lazyPart(() => import('./activity/activity-tab.tsx'), 'ActivityTab'),
} satisfies Record<MachineTab, unknown>;

const LABELS: Record<MachineTab, string> = {
  overview: 'Overview',
  terminal: 'Terminal',
  jobs: 'Jobs',
  files: 'Files',
  ports: 'Ports',
  volumes: 'Volumes',
  snapshots: 'Snapshots',
  activity: 'Activity',
};

export function MachinePage() {
  const { machineId } = route.useParams();
  const { tab = 'overview' } = route.useSearch();
  const { data: machine, error } = useQuery(machineQuery(machineId));
  useTitle(isolate(machine?.name || machineId));
  if (!machine) return <p role="status">{error?.message ?? 'Loading the machine…'}</p>;
  const Tab = TABS[tab];
  return (
    <>
      <header className={styles.head}>
        <h1>
          <bdi>{machine.name || machine.id}</bdi>
        </h1>
        <StateBadge machine={machine} />
      </header>
      <nav aria-label="Parts of the machine" className={styles.tabs}>
        {MACHINE_TABS.map((name) => (
          <Link
            key={name}
            from="/machines/$machineId"
            to="."
            search={name === 'overview' ? {} : { tab: name }}
            // Without this, the link to the overview, which has no `tab`, would count as active on every tab.
            activeOptions={{ exact: true, includeSearch: true }}
            aria-current={name === tab ? 'page' : undefined}
          >
            {LABELS[name]}
          </Link>
        ))}
      </nav>
      <Suspense fallback={<p role="status">Loading…</p>}>
        {/* The key gives each machine its own dialogs and forms, also when the page changes to another machine. */}
        <Tab key={machine.id} machine={machine} />
      </Suspense>
    </>
  );
}
