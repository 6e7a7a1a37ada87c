// Shows the toasts of everything inside it (see notify.ts). F6 moves the focus to them.
import { Toast } from '@base-ui/react/toast';
import type { ReactNode } from 'react';
import type { ToastData } from './notify.ts';
import { ProblemText } from './problem.tsx';
import styles from './toaster.module.css';

export function Toaster({ children }: { children: ReactNode }) {
  return (
    <Toast.Provider limit={4}>
      {children}
      <Toast.Portal>
        <Toast.Viewport className={styles.viewport}>
          <Toasts />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}

function Toasts() {
  const { toasts } = Toast.useToastManager<ToastData>();
  return toasts.map((toast) => (
    <Toast.Root key={toast.id} toast={toast} swipeDirection={[]} className={styles.toast}>
      <Toast.Content className={styles.content}>
        <Toast.Title className={styles.title} render={<p />} />
        {toast.data?.problem ? (
          <Toast.Description className={styles.text}>
            <ProblemText error={toast.data.problem} />
          </Toast.Description>
        ) : null}
      </Toast.Content>
      <Toast.Close className={styles.close} aria-label="Dismiss">
        ✕
      </Toast.Close>
    </Toast.Root>
  ));
}
