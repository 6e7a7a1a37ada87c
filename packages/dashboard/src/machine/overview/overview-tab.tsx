// The tab "overview" of a machine: what it is, what may be done with it, and what it costs.
import type { Schemas } from '../../api/client.ts';
import { EmulatedNote } from '../../machines/emulated-note.tsx';
import { Actions } from './actions.tsx';
import { Cost } from './cost.tsx';
import { ExpiryEditor } from './expiry-editor.tsx';
import { Facts } from './facts.tsx';
import { MetadataEditor } from './metadata-editor.tsx';
import { NameEditor } from './name-editor.tsx';
import styles from './overview.module.css';

export function OverviewTab({ machine }: { machine: Schemas['Machine'] }) {
  return (
    <div className={styles.page}>
      <Actions machine={machine} />
      {machine.isolation === 'emulated' ? <EmulatedNote /> : null}
      <div className={styles.columns}>
        <Facts machine={machine} />
        <div className={styles.page}>
          <NameEditor machine={machine} />
          <ExpiryEditor machine={machine} />
          <MetadataEditor machine={machine} />
          <Cost machine={machine} />
        </div>
      </div>
    </div>
  );
}
