// What can be done with a snapshot: make a machine from it, restore it, delete it.
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { reasonAgainst } from '../machines/actions.ts';
import { loadedMachinesQuery } from '../machines/machines-query.ts';
import { useActions } from '../ui/actions.tsx';
import { ConfirmDialog } from '../ui/dialog.tsx';
import { RowMenu } from '../ui/row-menu.tsx';
import { isolate } from '../ui/visible-text.ts';

export function SnapshotMenu({ snapshot }: { snapshot: Schemas['Snapshot'] }) {
  const [open, setOpen] = useState<'restore' | 'delete' | undefined>();
  const { data: machines } = useQuery(loadedMachinesQuery);
  const { mutate } = useActions('snapshots', ['snapshots', 'machines', 'activity']);
  const machine = machines?.find(({ id }) => id === snapshot.machine_id);
  const name = snapshot.name || snapshot.id;
  const params = { path: { id: snapshot.id } };
  const restore = () =>
    mutate({ doing: 'Restoring', name, run: () => unwrap(api.POST('/v1/snapshots/{id}/restore', { params })) });
  const destroy = () =>
    mutate({ doing: 'Deleting', name, run: () => unwrap(api.DELETE('/v1/snapshots/{id}', { params })) });
  const damage =
    snapshot.state === 'error' ? `The snapshot is in error: ${snapshot.error ?? 'it is damaged.'}` : undefined;
  return (
    <>
      <RowMenu
        label={name}
        actions={[
          {
            label: 'New machine from it…',
            reason: damage,
            link: <Link to="/machines" search={{ new: true, boot: 'snapshot', from: snapshot.id }} />,
          },
          {
            label: 'Restore…',
            isDanger: true,
            reason: damage ?? (machine && reasonAgainst(machine, 'restore')),
            onSelect: () => setOpen('restore'),
          },
          { label: 'Delete…', isDanger: true, onSelect: () => setOpen('delete') },
        ]}
      />
      <ConfirmDialog
        title={`Restore ${isolate(name)}?`}
        action="Restore"
        onConfirm={() => {
          setOpen(undefined);
          restore();
        }}
        isOpen={open === 'restore'}
        onCancel={() => setOpen(undefined)}
      >
        The disk of <bdi>{machine?.name || snapshot.machine_id}</bdi> goes back to the snapshot. What was written since
        is lost. A running machine reboots. Its volumes stay as they are.
      </ConfirmDialog>
      <ConfirmDialog
        title={`Delete the snapshot ${isolate(name)}?`}
        action="Delete snapshot"
        onConfirm={() => {
          setOpen(undefined);
          destroy();
        }}
        isOpen={open === 'delete'}
        onCancel={() => setOpen(undefined)}
      >
        It cannot be restored afterwards. Machines that were made from it go on.
      </ConfirmDialog>
    </>
  );
}
