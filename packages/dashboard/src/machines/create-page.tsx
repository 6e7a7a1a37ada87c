// The page with the form for a new machine. It loads the quotas and what a machine can boot from before it shows the
// form.
import { queryOptions, useQuery } from '@tanstack/react-query';
import { getRouteApi, Link } from '@tanstack/react-router';
import { api, unwrap } from '../api/client.ts';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import type { CreateValues } from './create-body.ts';
import { CreateForm } from './create-form.tsx';
import { type MachineSearch, SOURCES } from './search.ts';

const route = getRouteApi('/signed-in/machines');

/** What a machine can boot from, and the account's quotas. */
const choicesQuery = queryOptions({
  queryKey: ['machines', 'choices'],
  queryFn: async () => {
    const disksOnly = { kind: 'root', state: 'available' } as const;
    const [quotas, { images }, { snapshots }, { volumes }] = await Promise.all([
      unwrap(api.GET('/v1/quotas')),
      unwrap(api.GET('/v1/images')),
      unwrap(api.GET('/v1/snapshots', { params: { query: { state: 'ready' } } })),
      unwrap(api.GET('/v1/volumes', { params: { query: disksOnly } })),
    ]);
    return { quotas, sources: { images, snapshots, disks: volumes } };
  },
});

export function CreatePage() {
  const search = route.useSearch();
  const choices = useQuery(choicesQuery);
  return (
    <>
      <PageHead
        title="Create a machine"
        actions={
          <Link from="/machines" to="." search={listSearch}>
            Back to the list
          </Link>
        }
      />
      <QueryGate query={choices} what="the form">
        {(found) => <CreateForm {...found} start={startOf(search)} />}
      </QueryGate>
    </>
  );
}

/** The query string of the list with its filters, without the form. */
const listSearch = ({ new: _new, boot: _boot, from: _from, ...filters }: MachineSearch): MachineSearch => filters;

/** The source that the URL names, such as `?boot=snapshot&from=ID`. */
function startOf({ boot = SOURCES[0], from = '' }: MachineSearch): Partial<CreateValues> {
  if (boot === 'snapshot') return { source: boot, snapshot_id: from };
  if (boot === 'disk') return { source: boot, root_volume_id: from };
  return from === '' ? {} : { stack: from };
}
