// The form that takes a snapshot of the disk or, of a running machine, of the memory too.
import { type FormEvent, useState } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { reasonAgainst } from '../../machines/actions.ts';
import form from '../../machines/form.module.css';
import { Problem } from '../../machines/problem.tsx';
import { useAction } from '../../machines/use-action.ts';
import { Button } from '../../ui/button.tsx';
import { Field } from '../../ui/field.tsx';
import list from '../list.module.css';

export function TakeSnapshot({ machine }: { machine: Schemas['Machine'] }) {
  const [name, setName] = useState('');
  const [isWithMemory, setWithMemory] = useState(false);
  const take = useAction(
    (body: { name: string; memory: boolean }) =>
      unwrap(api.POST('/v1/machines/{id}/snapshots', { params: { path: { id: machine.id } }, body })),
    () => setName(''),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    take.run({ name, memory: isWithMemory });
  };
  return (
    <form onSubmit={submit} aria-label="Take a snapshot">
      <div className={list.form}>
        <Field label="Name">
          {(attributes) => (
            <input
              {...attributes}
              autoComplete="off"
              maxLength={255}
              value={name}
              onChange={({ target }) => setName(target.value)}
            />
          )}
        </Field>
        <label className={form.check}>
          <input type="checkbox" checked={isWithMemory} onChange={({ target }) => setWithMemory(target.checked)} />
          Memory and processes too
        </label>
        <Button
          type="submit"
          kind="primary"
          busy={take.isPending}
          reason={reasonAgainst(machine, isWithMemory ? 'snapshot-memory' : 'snapshot')}
        >
          {take.isPending ? 'Taking…' : 'Take a snapshot'}
        </Button>
      </div>
      <Problem error={take.error} />
    </form>
  );
}
