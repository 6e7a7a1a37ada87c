// Shows and changes when a machine expires. A new expiry counts from the moment of the change.
import { useState } from 'react';
import type { Schemas } from '../../api/client.ts';
import type { Expiry } from '../../machines/create-body.ts';
import { checkExpiry } from '../../machines/create-check.ts';
import { ExpiryField } from '../../machines/expiry-field.tsx';
import form from '../../machines/form.module.css';
import { exactTime, Time } from '../../ui/time.tsx';
import { Editor } from './editor.tsx';
import { expiryUpdate } from './expiry-update.ts';
import { reasonAgainstUpdate, useUpdate } from './use-update.ts';

export function ExpiryEditor({ machine }: { machine: Schemas['Machine'] }) {
  const [expiry, setExpiry] = useState<Expiry>();
  const [isRemoved, setRemoved] = useState(false);
  const close = () => setExpiry(undefined);
  const update = useUpdate(machine.id, close);
  const problem = expiry && checkExpiry(expiry);
  const save = () => {
    if (!expiry || problem) return;
    update.run(expiryUpdate(expiry, isRemoved));
  };
  return (
    <Editor
      title="Expiry"
      shown={<ShownExpiry machine={machine} />}
      isOpen={expiry !== undefined}
      onOpen={() => {
        update.reset();
        setRemoved(false);
        setExpiry({ count: '', unit: 'hours', action: machine.on_expiry });
      }}
      onClose={close}
      onSave={save}
      reason={reasonAgainstUpdate(machine)}
      isSaving={update.isPending}
      error={update.error}
    >
      {expiry ? (
        <ExpiryField
          value={expiry}
          empty={machine.expires_at === null || isRemoved ? 'never' : 'unchanged'}
          error={problem}
          onChange={(next) => {
            setExpiry(next);
            if (next.count !== '') setRemoved(false);
          }}
        />
      ) : null}
      {expiry && machine.expires_at !== null ? (
        <label className={form.check}>
          <input
            type="checkbox"
            checked={isRemoved}
            onChange={({ target }) => {
              setRemoved(target.checked);
              setExpiry({ ...expiry, count: '' });
            }}
          />
          Remove the expiry
        </label>
      ) : null}
    </Editor>
  );
}

function ShownExpiry({ machine: { expires_at, on_expiry } }: { machine: Schemas['Machine'] }) {
  if (expires_at === null) return 'never';
  return (
    <>
      {on_expiry} <Time at={expires_at} /> ({exactTime(expires_at)})
    </>
  );
}
