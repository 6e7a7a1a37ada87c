// Suspends or resumes an account, and resets its password.
import { useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { type AdminSchemas, adminApi } from '../api/admin-client.ts';
import { unwrap } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { ConfirmDialog } from '../ui/dialog.tsx';
import { Failure } from '../ui/failure.tsx';
import { useSingle } from '../ui/use-single.ts';
import styles from './operator.module.css';
import { reasonAgainstChange } from './operator-accounts.ts';
import { useCloseBehindPassword } from './password-dialog.tsx';
import { SecretsDialog } from './secrets-dialog.tsx';

type Account = AdminSchemas['AccountDetails'];
type Action = 'suspend' | 'reset';

export function AccountActions({ account }: { account: Account }) {
  const queryClient = useQueryClient();
  const params = { path: { id: account.id } };
  const [asked, setAsked] = useState<Action>();
  const closed = () => setAsked(undefined);
  const refresh = () => queryClient.invalidateQueries({ queryKey: ['operator'] });
  const suspend = useSingle({
    mutationFn: () => unwrap(adminApi.POST('/admin/v1/accounts/{id}/suspend', { params })),
    onSuccess: () => refresh(),
  });
  const resume = useSingle({
    mutationFn: () => unwrap(adminApi.POST('/admin/v1/accounts/{id}/resume', { params })),
    onSuccess: () => refresh(),
  });
  const reset = useSingle({
    mutationFn: () => unwrap(adminApi.POST('/admin/v1/accounts/{id}/password', { params })),
    // Otherwise the password would stay in the memory of the page.
    gcTime: 0,
  });
  const cancel = useCloseBehindPassword(() => {
    // The password of a request that is under way would never be shown.
    if (suspend.isPending || reset.isPending) return;
    suspend.reset();
    reset.reset();
    closed();
  });
  const isSuspended = account.suspended_at !== null;
  const reason = reasonAgainstChange(account);
  return (
    <section className={styles.part} aria-label="State and password">
      {isSuspended ? (
        <Button busy={resume.isPending} reason={reason} onClick={() => resume.run(undefined)}>
          Resume
        </Button>
      ) : (
        <Button kind="danger" reason={reason} onClick={() => setAsked('suspend')}>
          Suspend
        </Button>
      )}
      <Button reason={reason} onClick={() => setAsked('reset')}>
        Reset the password
      </Button>
      {isSuspended ? <span className={styles.quiet}>It can only read, and its machines are stopped.</span> : null}
      <Failure error={resume.error} />
      <ConfirmDialog
        isOpen={asked === 'suspend'}
        title="Suspend this account?"
        action="Suspend"
        busy={suspend.isPending}
        error={suspend.error}
        onConfirm={() => suspend.run(undefined, closed)}
        onCancel={cancel}
      >
        The machines of <bdi>{account.email}</bdi> stop. It can then read, but change nothing, until you resume it.
      </ConfirmDialog>
      <ConfirmDialog
        isOpen={asked === 'reset'}
        title="Reset the password of this account?"
        action="Reset the password"
        busy={reset.isPending}
        error={reset.error}
        onConfirm={() => reset.run(undefined, closed)}
        onCancel={cancel}
      >
        The old password of <bdi>{account.email}</bdi> ends, and so do all its sessions. The new one is shown once.
      </ConfirmDialog>
      <SecretsDialog secrets={reset.data} onClose={reset.reset} />
    </section>
  );
}
