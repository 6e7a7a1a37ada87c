// The same actions for a port that is not in the list, because no program listens on it now.
import { useId, useState } from 'react';
import { AccessButton } from './access-button.tsx';
import { CopyLink } from './copy-link.tsx';
import type { Note } from './note.tsx';
import { OpenPort } from './open-port.tsx';
import styles from './ports.module.css';
import type { Port } from './ports-tab.tsx';

type Props = { machineId: string; onNote: (note: Note) => void };

export function OtherPort({ machineId, onNote }: Props) {
  const [typed, setTyped] = useState('');
  const id = useId();
  const number = Number(typed);
  const reason = Number.isInteger(number) && number >= 1 && number <= 65_535 ? undefined : 'Give a port, 1 to 65535.';
  // A link with a token works for a public port too, so the page need not know the access.
  const port: Port = { port: number, process: null, protocol: 'tcp', url: '', access: 'private' };
  return (
    <section aria-label="Another port" className={styles.other}>
      <label htmlFor={id}>A port that is not listed</label>
      <input
        id={id}
        inputMode="numeric"
        placeholder="8000"
        size={6}
        autoComplete="off"
        value={typed}
        onChange={({ target }) => setTyped(target.value.trim())}
      />
      <OpenPort machineId={machineId} port={port} reason={reason} onNote={onNote} />
      <CopyLink machineId={machineId} port={port} reason={reason} onNote={onNote} />
      <AccessButton machineId={machineId} port={port} reason={reason} onNote={onNote} />
      <AccessButton machineId={machineId} port={{ ...port, access: 'public' }} reason={reason} onNote={onNote} />
    </section>
  );
}
