// Asks before a snapshot is restored or deleted.
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { useAction } from '../../machines/use-action.ts';
import { ConfirmDialog } from '../../ui/dialog.tsx';
import type { Asked } from './snapshots-tab.tsx';

const WORDS = {
  restore: { title: 'Restore', confirm: 'Restore the disk' },
  delete: { title: 'Delete', confirm: 'Delete the snapshot' },
} as const;

type Props = Asked & { machine: Schemas['Machine']; onClose: () => void };

export function SnapshotDialog({ snapshot, action, machine, onClose }: Props) {
  const act = useAction(async () => {
    const params = { path: { id: snapshot.id } };
    if (action === 'restore') await unwrap(api.POST('/v1/snapshots/{id}/restore', { params }));
    else await unwrap(api.DELETE('/v1/snapshots/{id}', { params }));
  }, onClose);
  const reboots = machine.state === 'running' ? ' The machine reboots.' : '';
  return (
    <ConfirmDialog
      isOpen
      onCancel={onClose}
      title={
        <>
          {WORDS[action].title} <bdi>{snapshot.name || snapshot.id}</bdi>?
        </>
      }
      action={WORDS[action].confirm}
      busy={act.isPending}
      error={act.error}
      onConfirm={() => act.run(undefined)}
    >
      {action === 'restore'
        ? `The root disk goes back to the snapshot, and everything written since is lost.${reboots} Volumes stay as they are.`
        : 'Machines that were made from it live on. This cannot be undone.'}
    </ConfirmDialog>
  );
}
