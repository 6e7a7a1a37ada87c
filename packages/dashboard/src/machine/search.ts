// The query string of a machine's page: the open tab, and what the tab shows.
export const MACHINE_TABS = [
  'overview',
  'terminal',
  'jobs',
  'files',
  'ports',
  'volumes',
  'snapshots',
  'activity',
] as const;
export type MachineTab = (typeof MACHINE_TABS)[number];

/** `path`: the folder or file of the tab "files". `job`: the job that the tab "jobs" shows. */
type MachinePageSearch = { tab?: MachineTab; path?: string; job?: string };

export function machinePageSearch(search: Record<string, unknown>): MachinePageSearch {
  const tab = MACHINE_TABS.find((known) => known === search.tab);
  return {
    ...(tab ? { tab } : {}),
    ...(typeof search.path === 'string' ? { path: search.path } : {}),
    ...(typeof search.job === 'string' ? { job: search.job } : {}),
  };
}
