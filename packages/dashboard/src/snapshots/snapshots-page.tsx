// The list of the snapshots of all machines.
import { useQuery } from '@tanstack/react-query';
import { machinesQuery } from '../machines/machines-query.ts';
import { samplesOf } from '../machines/samples.ts';
import { ActionStatus } from '../ui/actions.tsx';
import { CodeSample } from '../ui/code-sample.tsx';
import { DataTable } from '../ui/data-table.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { QueryGate } from '../ui/query-gate.tsx';
import { SNAPSHOT_COLUMNS } from './snapshot-columns.tsx';
import { snapshotsQuery } from './snapshots-query.ts';

export function SnapshotsPage() {
  const snapshots = useQuery(snapshotsQuery);
  // Loads the names and states of the machines for the rows.
  const { data: machines = [] } = useQuery(machinesQuery);
  return (
    <>
      <PageHead title="Snapshots" count={snapshots.data?.length} />
      <ActionStatus scope="snapshots" />
      <QueryGate query={snapshots} what="snapshots">
        {(all) => (
          <DataTable
            label="Snapshots"
            rows={all}
            columns={SNAPSHOT_COLUMNS}
            idOf={({ id }) => id}
            empty={<NoSnapshots machineId={machines[0]?.id ?? 'MACHINE'} />}
          />
        )}
      </QueryGate>
    </>
  );
}

function NoSnapshots({ machineId }: { machineId: string }) {
  const samples = samplesOf({
    origin: location.origin,
    method: 'POST',
    path: `/v1/machines/${machineId}/snapshots`,
    body: { name: 'before' },
    cli: `sandbar snapshot create ${machineId} --name before`,
    typescript: `const snapshot = await sandbar.snapshots.create('${machineId}', { name: 'before' });`,
  });
  return (
    <>
      <p>
        There are no snapshots yet. A snapshot keeps the disk of a machine as it is now. Take one with any of these:
      </p>
      <CodeSample samples={samples} />
    </>
  );
}
