// The frame of the operator's pages: other accounts cannot open them, and the password dialog is above all of them.
import { useQuery } from '@tanstack/react-query';
import { Outlet } from '@tanstack/react-router';
import { useEffect } from 'react';
import { passwordGate } from '../api/password-gate.ts';
import { accountQuery } from '../session/session.ts';
import { CodeSample } from '../ui/code-sample.tsx';
import { PageHead } from '../ui/page-head.tsx';
import { PasswordDialog } from './password-dialog.tsx';

export function OperatorFrame() {
  const { data: account } = useQuery(accountQuery);
  useEffect(() => passwordGate.reset, []);
  if (!account) return null;
  if (!account.is_operator) return <NotAnOperator email={account.email} />;
  return (
    <>
      <PasswordDialog />
      <Outlet />
    </>
  );
}

function NotAnOperator({ email }: { email: string }) {
  return (
    <>
      <PageHead title="For operators only">
        <p>
          This page is about the whole service, and <bdi>{email}</bdi> is not an operator of it. The owner of the
          service can name you on its computer:
        </p>
      </PageHead>
      <CodeSample samples={[{ label: 'CLI', code: `sandbar admin account operator ${email}` }]} />
    </>
  );
}
