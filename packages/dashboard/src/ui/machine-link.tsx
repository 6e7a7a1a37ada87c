// A link to a machine by its name. A machine that is not in the list is destroyed; its page still opens.
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { loadedMachinesQuery } from '../machines/machines-query.ts';
import styles from './clipped.module.css';

export function MachineLink({ id }: { id: string }) {
  const { data: machines } = useQuery(loadedMachinesQuery);
  const machine = machines?.find((one) => one.id === id);
  const isDestroyed = machines !== undefined && machine === undefined;
  return (
    <Link to="/machines/$machineId" params={{ machineId: id }} search={{}} title={id}>
      <bdi className={styles.clipped}>{machine?.name || (isDestroyed ? `…${id.slice(-12)}` : id)}</bdi>
      {isDestroyed ? ' (destroyed)' : ''}
    </Link>
  );
}
