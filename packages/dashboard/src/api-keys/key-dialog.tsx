// Shows a new API key once. Only the button of the dialog closes it. A click outside and Escape do nothing, because the
// key would be lost.
import { useRef } from 'react';
import type { Schemas } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { COPY_REFUSED, useCopy } from '../ui/copy.ts';
import { Dialog, DialogButtons } from '../ui/dialog.tsx';
import styles from './key-dialog.module.css';

type Props = { made: Schemas['NewApiKey'] | undefined; onClose: () => void };

export function KeyDialog({ made, onClose }: Props) {
  return (
    <Dialog
      isOpen={made !== undefined}
      title={
        <>
          The key <bdi>{made?.name}</bdi>
        </>
      }
    >
      {made === undefined ? null : <Key value={made.key} onClose={onClose} />}
    </Dialog>
  );
}

function Key({ value, onClose }: { value: string; onClose: () => void }) {
  const { outcome, copy } = useCopy(value);
  const shown = useRef<HTMLElement>(null);
  return (
    <>
      <p className={styles.text}>
        Copy it now. It is shown this once: the service keeps only its hash. Programs read it from SANDBAR_API_KEY.
      </p>
      <code ref={shown} className={styles.key} data-testid="new-key">
        {value}
      </code>
      <DialogButtons>
        <span role="status" className={styles.status}>
          {outcome === 'refused' ? COPY_REFUSED : ''}
        </span>
        <Button onClick={() => void copy(shown.current)}>{outcome === 'copied' ? 'Copied' : 'Copy'}</Button>
        <Button kind="primary" onClick={onClose}>
          I have the key
        </Button>
      </DialogButtons>
    </>
  );
}
