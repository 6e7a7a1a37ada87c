// The form that attaches a data volume to the machine.
import { defaultMountPath, VOLUME_BOUNDS } from '@sandbar/contract/volume-states.ts';
import { Link } from '@tanstack/react-router';
import { type FormEvent, useState } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { reasonAgainst } from '../../machines/actions.ts';
import { Problem } from '../../machines/problem.tsx';
import { useAction } from '../../machines/use-action.ts';
import { Button } from '../../ui/button.tsx';
import { Field } from '../../ui/field.tsx';
import { isolate } from '../../ui/visible-text.ts';
import list from '../list.module.css';

type Props = { machine: Schemas['Machine']; available: readonly Schemas['Volume'][] };
type Wanted = { id: string; path: string };

export function AttachVolume({ machine, available }: Props) {
  const [chosen, setChosen] = useState('');
  const [path, setPath] = useState('');
  // The chosen volume may have been attached elsewhere or deleted meanwhile.
  const id = available.some((volume) => volume.id === chosen) ? chosen : (available[0]?.id ?? '');
  const attach = useAction(
    (wanted: Wanted) =>
      unwrap(
        api.POST('/v1/volumes/{id}/attach', {
          params: { path: { id: wanted.id } },
          body: { machine_id: machine.id, ...(wanted.path === '' ? {} : { mount_path: wanted.path }) },
        }),
      ),
    () => setPath(''),
  );
  const submit = (event: FormEvent) => {
    event.preventDefault();
    attach.run({ id, path });
  };
  const reason = id === '' ? 'There is no detached data volume.' : reasonAgainst(machine, 'attach');
  return (
    <form onSubmit={submit} aria-label="Attach a volume">
      <div className={list.form}>
        <Field label="Volume">
          {(attributes) => (
            <select {...attributes} value={id} onChange={({ target }) => setChosen(target.value)}>
              {available.length === 0 ? <option value="">None is detached</option> : null}
              {available.map((volume) => (
                <option key={volume.id} value={volume.id}>
                  {`${isolate(volume.name || volume.id)} (${volume.size_gb} GiB)`}
                </option>
              ))}
            </select>
          )}
        </Field>
        <Field label="Mount at">
          {(attributes) => (
            <input
              {...attributes}
              autoComplete="off"
              spellCheck={false}
              maxLength={VOLUME_BOUNDS.mountPathLength}
              placeholder={defaultMountPath(id || 'VOLUME')}
              value={path}
              onChange={({ target }) => setPath(target.value)}
            />
          )}
        </Field>
        <Button type="submit" kind="primary" busy={attach.isPending} reason={reason}>
          {attach.isPending ? 'Attaching…' : 'Attach'}
        </Button>
      </div>
      <Problem error={attach.error} />
      {available.length === 0 ? (
        <p className={list.muted}>
          <Link to="/volumes">Create a volume</Link> to attach it here.
        </p>
      ) : null}
    </form>
  );
}
