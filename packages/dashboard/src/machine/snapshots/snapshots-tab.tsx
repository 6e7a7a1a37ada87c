// The tab "snapshots" of a machine: takes, restores and deletes them.
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import type { Schemas } from '../../api/client.ts';
import { Problem } from '../../machines/problem.tsx';
import { samplesOf } from '../../machines/samples.ts';
import { CodeSample } from '../../ui/code-sample.tsx';
import list from '../list.module.css';
import { machineSnapshotsQuery } from './query.ts';
import { SnapshotDialog } from './snapshot-dialog.tsx';
import { SnapshotRow } from './snapshot-row.tsx';
import { TakeSnapshot } from './take-snapshot.tsx';

export type Asked = { snapshot: Schemas['Snapshot']; action: 'restore' | 'delete' };

export function SnapshotsTab({ machine }: { machine: Schemas['Machine'] }) {
  const { data: snapshots, error } = useQuery(machineSnapshotsQuery(machine.id));
  const [asked, setAsked] = useState<Asked>();
  return (
    <div className={list.page}>
      <TakeSnapshot machine={machine} />
      {snapshots === undefined ? (
        error ? (
          <Problem error={error} />
        ) : (
          <p role="status">Loading snapshots…</p>
        )
      ) : snapshots.length === 0 ? (
        <NoSnapshots machineId={machine.id} />
      ) : (
        <ul className={list.list} aria-label="Snapshots">
          {snapshots.map((snapshot) => (
            <SnapshotRow
              key={snapshot.id}
              snapshot={snapshot}
              machine={machine}
              onAsk={(action) => setAsked({ snapshot, action })}
            />
          ))}
        </ul>
      )}
      {asked ? <SnapshotDialog {...asked} machine={machine} onClose={() => setAsked(undefined)} /> : null}
    </div>
  );
}

function NoSnapshots({ machineId }: { machineId: string }) {
  return (
    <div className={list.empty}>
      <p>The machine has no snapshots. Take one above, or with any of these:</p>
      <CodeSample
        samples={samplesOf({
          origin: location.origin,
          method: 'POST',
          path: `/v1/machines/${machineId}/snapshots`,
          body: { name: 'before the update' },
          cli: `sandbar snapshot create ${machineId} --name 'before the update'`,
          typescript: `await sandbar.snapshots.create('${machineId}', { name: 'before the update' });`,
        })}
      />
    </div>
  );
}
