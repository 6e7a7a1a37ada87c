// A note that this host runs machines without hardware virtualisation.
import styles from './machines.module.css';

export function EmulatedNote() {
  return (
    <p className={styles.note}>
      This host emulates its machines (no KVM): they are slower and not isolated. Run only code that you trust.
    </p>
  );
}
