// Shows and changes the name of a machine.
import { MACHINE_BOUNDS } from '@sandbar/contract/machine-states.ts';
import { useState } from 'react';
import type { Schemas } from '../../api/client.ts';
import { Field } from '../../ui/field.tsx';
import { Editor } from './editor.tsx';
import { reasonAgainstUpdate, useUpdate } from './use-update.ts';

export function NameEditor({ machine }: { machine: Schemas['Machine'] }) {
  const [name, setName] = useState<string>();
  const close = () => setName(undefined);
  const update = useUpdate(machine.id, close);
  return (
    <Editor
      title="Name"
      shown={machine.name === '' ? 'none' : <bdi>{machine.name}</bdi>}
      isOpen={name !== undefined}
      onOpen={() => {
        update.reset();
        setName(machine.name);
      }}
      onClose={close}
      onSave={() => update.run({ name: name ?? '' })}
      reason={reasonAgainstUpdate(machine)}
      isSaving={update.isPending}
      error={update.error}
    >
      <Field label="New name">
        {(attributes) => (
          <input
            {...attributes}
            autoComplete="off"
            maxLength={MACHINE_BOUNDS.nameLength}
            value={name ?? ''}
            onChange={({ target }) => setName(target.value)}
          />
        )}
      </Field>
    </Editor>
  );
}
