// Asks before a machine is destroyed: whether its disk is kept, and whether its snapshots go too.
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import form from '../../machines/form.module.css';
import { useAction } from '../../machines/use-action.ts';
import { ConfirmDialog } from '../../ui/dialog.tsx';
import { machineSnapshotsQuery } from '../snapshots/query.ts';

type Props = { machine: Schemas['Machine']; open: boolean; onOpenChange: (open: boolean) => void };

export function DestroyDialog({ machine, open, onOpenChange }: Props) {
  const { data: snapshots = [] } = useQuery({ ...machineSnapshotsQuery(machine.id), enabled: open });
  const [isDiskKept, setDiskKept] = useState(false);
  const [areSnapshotsDeleted, setSnapshotsDeleted] = useState(false);
  const destroy = useAction(
    () => {
      const query = { preserve_storage: isDiskKept, delete_snapshots: areSnapshotsDeleted };
      return unwrap(api.DELETE('/v1/machines/{id}', { params: { path: { id: machine.id }, query } }));
    },
    () => onOpenChange(false),
  );
  const cancel = () => {
    setDiskKept(false);
    setSnapshotsDeleted(false);
    // A request that is under way goes on. Its failure shows when the dialog opens again.
    if (!destroy.isPending) destroy.reset();
    onOpenChange(false);
  };
  const count = snapshots.length === 1 ? 'its snapshot' : `its ${snapshots.length} snapshots`;
  const isHeld = snapshots.length > 0 && !areSnapshotsDeleted;
  return (
    <ConfirmDialog
      isOpen={open}
      onCancel={cancel}
      title={
        <>
          Destroy <bdi>{machine.name || machine.id}</bdi>?
        </>
      }
      action="Destroy the machine"
      reason={isHeld ? `Delete ${count} too: a machine with snapshots cannot be destroyed.` : undefined}
      busy={destroy.isPending}
      error={destroy.error}
      onConfirm={() => destroy.run(undefined)}
    >
      <p>
        {isDiskKept
          ? 'The machine ends. Its disk becomes a volume, from which another machine can boot.'
          : 'The machine ends and its disk is deleted. This cannot be undone. Attached volumes stay.'}
      </p>
      <label className={form.check}>
        <input type="checkbox" checked={isDiskKept} onChange={({ target }) => setDiskKept(target.checked)} />
        Keep its disk as a volume
      </label>
      {snapshots.length === 0 ? null : (
        <label className={form.check}>
          <input
            type="checkbox"
            checked={areSnapshotsDeleted}
            onChange={({ target }) => setSnapshotsDeleted(target.checked)}
          />
          Delete {count} too
        </label>
      )}
    </ConfirmDialog>
  );
}
