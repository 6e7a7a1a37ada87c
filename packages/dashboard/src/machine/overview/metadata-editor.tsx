// The metadata of a machine. Saving changes only what the person changed: others may have changed the rest meanwhile.
import { useState } from 'react';
import type { Schemas } from '../../api/client.ts';
import { KeyValueRows } from '../../machines/key-value-rows.tsx';
import { emptyRow, objectOf, problemOf, type Row, rowsOf, withChanges } from '../../machines/key-values.ts';
import { Editor } from './editor.tsx';
import styles from './overview.module.css';
import { reasonAgainstUpdate, useUpdate } from './use-update.ts';

export function MetadataEditor({ machine }: { machine: Schemas['Machine'] }) {
  const [rows, setRows] = useState<Row[]>();
  const [opened, setOpened] = useState(machine.metadata);
  const close = () => setRows(undefined);
  const update = useUpdate(machine.id, close);
  const problem = rows && problemOf(rows);
  return (
    <Editor
      title="Metadata"
      shown={<ShownMetadata metadata={machine.metadata} />}
      isOpen={rows !== undefined}
      onOpen={() => {
        update.reset();
        setOpened(machine.metadata);
        const present = rowsOf(machine.metadata);
        setRows(present.length === 0 ? [emptyRow()] : present);
      }}
      onClose={close}
      onSave={() => {
        if (!rows || problem) return;
        update.run(({ metadata }) => ({ metadata: withChanges(metadata, opened, objectOf(rows)) }));
      }}
      reason={reasonAgainstUpdate(machine)}
      isSaving={update.isPending}
      error={update.error}
    >
      {rows ? <KeyValueRows label="Metadata" error={problem} rows={rows} onChange={setRows} /> : null}
    </Editor>
  );
}

function ShownMetadata({ metadata }: { metadata: Schemas['Machine']['metadata'] }) {
  const entries = Object.entries(metadata);
  if (entries.length === 0) return 'none';
  return (
    <dl className={styles.facts}>
      {entries.map(([key, value]) => (
        <Entry key={key} name={key} value={typeof value === 'string' ? value : JSON.stringify(value)} />
      ))}
    </dl>
  );
}

function Entry({ name, value }: { name: string; value: string }) {
  return (
    <>
      <dt>
        <bdi>{name}</bdi>
      </dt>
      <dd>
        <bdi>{value}</bdi>
      </dd>
    </>
  );
}
