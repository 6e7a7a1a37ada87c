// Dialogs: one for any content, and one that asks before something is done.
import { AlertDialog } from '@base-ui/react/alert-dialog';
import { Dialog as Base } from '@base-ui/react/dialog';
import { type ReactNode, useRef } from 'react';
import { Button } from './button.tsx';
import styles from './dialog.module.css';
import { ProblemText } from './problem.tsx';

type Props = {
  isOpen: boolean;
  title: ReactNode;
  /**
   * Called by Escape, by the button "Close" and by a click outside. Without it, only the content can close the dialog.
   */
  onClose?: () => void;
  /** Whether it is a question that needs an answer. It has no button "Close", and a click outside does nothing. */
  isQuestion?: boolean;
  children: ReactNode;
};

const FIELD = 'input, select, textarea';
const BUTTON = 'footer button';

/** The focus begins in the first field; in a question, on the first button of the last line. */
export function Dialog({ isOpen, title, onClose, isQuestion = false, children }: Props) {
  const popup = useRef<HTMLDivElement>(null);
  const isAlert = isQuestion || onClose === undefined;
  const Root = isAlert ? AlertDialog.Root : Base.Root;
  return (
    <Root open={isOpen} onOpenChange={(open) => (open ? undefined : onClose?.())}>
      <Base.Portal>
        <Base.Backdrop className={styles.backdrop} />
        <Base.Popup
          ref={popup}
          className={styles.popup}
          initialFocus={() => popup.current?.querySelector<HTMLElement>(isAlert ? BUTTON : FIELD) ?? true}
        >
          <header className={styles.head}>
            <Base.Title className={styles.title}>{title}</Base.Title>
            {isAlert ? null : (
              <Base.Close className={styles.close} aria-label="Close">
                ✕
              </Base.Close>
            )}
          </header>
          {children}
        </Base.Popup>
      </Base.Portal>
    </Root>
  );
}

/** The buttons at the end of a dialog. */
export function DialogButtons({ children }: { children: ReactNode }) {
  return <footer className={styles.buttons}>{children}</footer>;
}

type ConfirmProps = {
  isOpen: boolean;
  /** The question, such as "Destroy 3 machines?". */
  title: ReactNode;
  /** What is lost. */
  children: ReactNode;
  /** The label of the button that does it, such as "Destroy 3 machines". */
  action: string;
  /** The label of the button that does nothing. */
  cancel?: string;
  /** A further button between the two. */
  other?: ReactNode;
  busy?: boolean;
  /** Why the person cannot confirm now; undefined when they can. */
  reason?: string | undefined;
  /** Why the last try failed. The window stays open with it. */
  error?: Error | null;
  onConfirm: () => void;
  onCancel: () => void;
};

/**
 * Asks before something that cannot be undone. The focus begins on the button that cancels, so that Enter alone
 * destroys nothing.
 */
export function ConfirmDialog(props: ConfirmProps) {
  const { isOpen, title, children, action, cancel = 'Cancel', other, busy = false, reason, error } = props;
  return (
    <Dialog isOpen={isOpen} title={title} onClose={props.onCancel} isQuestion>
      <Base.Description render={<div />} className={styles.text}>
        {children}
      </Base.Description>
      {error ? (
        <p role="alert" className={styles.problem}>
          <ProblemText error={error} />
        </p>
      ) : null}
      <DialogButtons>
        <Button onClick={props.onCancel}>{cancel}</Button>
        {other}
        <Button kind="danger" busy={busy} reason={reason} onClick={props.onConfirm}>
          {action}
        </Button>
      </DialogButtons>
    </Dialog>
  );
}
