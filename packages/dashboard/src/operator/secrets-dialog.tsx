// Shows the new key or password of an account once. Only the button of the dialog closes it. A click outside and Escape
// do nothing, because the secrets would be lost.
import { AlertDialog } from '@base-ui/react/alert-dialog';
import { useRef } from 'react';
import { Button } from '../ui/button.tsx';
import { COPY_REFUSED, useCopy } from '../ui/copy.ts';
import modal from '../ui/dialog.module.css';
import styles from './operator.module.css';

type Secrets = { email: string; password: string; api_key?: string };

type Props = { secrets: Secrets | undefined; onClose: () => void };

export function SecretsDialog({ secrets, onClose }: Props) {
  return (
    <AlertDialog.Root open={secrets !== undefined}>
      <AlertDialog.Portal>
        <AlertDialog.Backdrop className={modal.backdrop} />
        <AlertDialog.Popup className={modal.popup}>
          {secrets === undefined ? null : (
            <>
              <AlertDialog.Title className={modal.title}>
                The secrets of <bdi>{secrets.email}</bdi>
              </AlertDialog.Title>
              <AlertDialog.Description className={modal.text}>
                Copy them now. They are shown this once: the service keeps only their hashes.
              </AlertDialog.Description>
              <Secret label="Password" value={secrets.password} />
              {secrets.api_key === undefined ? null : <Secret label="API key" value={secrets.api_key} />}
              <div className={modal.buttons}>
                <Button kind="primary" onClick={onClose}>
                  I have copied them
                </Button>
              </div>
            </>
          )}
        </AlertDialog.Popup>
      </AlertDialog.Portal>
    </AlertDialog.Root>
  );
}

function Secret({ label, value }: { label: string; value: string }) {
  const { outcome, copy } = useCopy(value);
  const shown = useRef<HTMLElement>(null);
  return (
    <section className={styles.secret} aria-label={label}>
      <header className={styles.part}>
        <span>{label}</span>
        <Button onClick={() => void copy(shown.current)}>{outcome === 'copied' ? 'Copied' : 'Copy'}</Button>
        <span role="status" className={styles.quiet}>
          {outcome === 'refused' ? COPY_REFUSED : ''}
        </span>
      </header>
      <code ref={shown}>{value}</code>
    </section>
  );
}
