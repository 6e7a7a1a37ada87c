// Says how the login of a program ended, and what the person does next.
import { Link } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import styles from './device.module.css';

export type EndingKind = 'approved' | 'denied' | 'expired';

const TITLES: Record<EndingKind, string> = {
  approved: 'The login is approved',
  denied: 'The login is denied',
  expired: 'This code has expired',
};

const TEXTS: Record<EndingKind, ReactNode> = {
  approved: (
    <>
      Go back to the terminal: the program gets its key within seconds. You can revoke the key under{' '}
      <Link to="/api-keys" search={{}}>
        API keys
      </Link>
      .
    </>
  ),
  denied: 'The program gets no API key.',
  expired: (
    <>
      A code works for ten minutes. Run <code>sandbar login</code> again for a new one.
    </>
  ),
};

export function Ending({ kind }: { kind: EndingKind }) {
  return (
    <div role="status" className={styles.box}>
      <h2>{TITLES[kind]}</h2>
      <p>{TEXTS[kind]}</p>
      <Link to="/device" search={{}}>
        Enter another code
      </Link>
    </div>
  );
}
