// One snapshot in the list, with what may be done with it.
import { Link } from '@tanstack/react-router';
import type { Schemas } from '../../api/client.ts';
import { reasonAgainst } from '../../machines/actions.ts';
import { Button } from '../../ui/button.tsx';
import { formatBytes } from '../../ui/bytes.ts';
import { Time } from '../../ui/time.tsx';
import list from '../list.module.css';
import type { Asked } from './snapshots-tab.tsx';

type Props = {
  snapshot: Schemas['Snapshot'];
  machine: Schemas['Machine'];
  onAsk: (action: Asked['action']) => void;
};

export function SnapshotRow({ snapshot, machine, onAsk }: Props) {
  const isReady = snapshot.state === 'ready';
  const broken = isReady ? undefined : 'The snapshot is in error.';
  return (
    <li className={list.item}>
      <div className={list.text}>
        <bdi>{snapshot.name || snapshot.id}</bdi>
        <span className={list.muted}>
          {snapshot.kind === 'memory' ? 'disk and memory' : 'disk'}, {snapshot.size_gb} GiB,{' '}
          {formatBytes(snapshot.stored_bytes)} stored, <Time at={snapshot.created_at} />
        </span>
        {isReady ? null : <bdi className={list.bad}>{snapshot.error ?? 'error'}</bdi>}
      </div>
      <div className={list.buttons}>
        {isReady ? (
          <Link to="/machines" search={{ new: true, boot: 'snapshot', from: snapshot.id }}>
            New machine from it
          </Link>
        ) : null}
        <Button reason={broken ?? reasonAgainst(machine, 'restore')} onClick={() => onAsk('restore')}>
          Restore
        </Button>
        <Button kind="danger" onClick={() => onAsk('delete')}>
          Delete
        </Button>
      </div>
    </li>
  );
}
