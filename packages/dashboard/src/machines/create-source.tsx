// The part of the form that says from what the machine boots: an image, a snapshot or a kept disk.
import type { ReactNode } from 'react';
import { Field } from '../ui/field.tsx';
import { isolate } from '../ui/visible-text.ts';
import type { CreateValues, Sources } from './create-body.ts';
import type { FieldName } from './create-check.ts';
import styles from './form.module.css';
import { SOURCES, type Source } from './search.ts';

type Props = {
  values: CreateValues;
  sources: Sources;
  errorAt: (field: FieldName) => ReactNode;
  onChange: (next: Partial<CreateValues>) => void;
};

const LABELS: Record<Source, string> = { image: 'An image', snapshot: 'A snapshot', disk: 'A kept disk' };

export function CreateSource(props: Props) {
  const { values, onChange } = props;
  return (
    <fieldset className={styles.group}>
      <legend>Boot from</legend>
      <div className={styles.choices}>
        {SOURCES.map((source) => (
          <label key={source}>
            <input
              type="radio"
              name="source"
              checked={values.source === source}
              onChange={() => onChange({ source })}
            />
            {LABELS[source]}
          </label>
        ))}
      </div>
      <Choice {...props} />
    </fieldset>
  );
}

type Option = { value: string; text: string };

function Choice({ values, sources, errorAt, onChange }: Props) {
  switch (values.source) {
    case 'image': {
      const options = sources.images.map(({ stack }) => ({ value: stack, text: stack }));
      const hint = sources.images.find(({ stack }) => stack === values.stack)?.description;
      return (
        <Select
          field="stack"
          label="Image"
          value={values.stack}
          options={options}
          hint={hint}
          error={errorAt('stack')}
          onChange={(stack) => onChange({ stack })}
        />
      );
    }
    case 'snapshot': {
      const options = sources.snapshots.map(({ id, name, kind, size_gb }) => ({
        value: id,
        text: `${isolate(name || id)} (${kind}, ${size_gb} GiB)`,
      }));
      const isMemory = sources.snapshots.find(({ id }) => id === values.snapshot_id)?.kind === 'memory';
      const resumes = 'Its processes go on where they were, with the vCPUs and the memory of the snapshot.';
      return (
        <Select
          field="snapshot_id"
          label="Snapshot"
          value={values.snapshot_id}
          options={[{ value: '', text: 'Choose a snapshot' }, ...options]}
          hint={options.length === 0 ? 'There is no snapshot yet.' : isMemory ? resumes : 'A copy of its disk.'}
          error={errorAt('snapshot_id')}
          onChange={(snapshot_id) => onChange({ snapshot_id })}
        />
      );
    }
    case 'disk': {
      const options = sources.disks.map(({ id, name, size_gb }) => ({
        value: id,
        text: `${isolate(name || id)} (${size_gb} GiB)`,
      }));
      return (
        <Select
          field="root_volume_id"
          label="Kept disk"
          value={values.root_volume_id}
          options={[{ value: '', text: 'Choose a disk' }, ...options]}
          hint={
            options.length === 0
              ? 'There is no kept disk. Destroying a machine can keep its disk.'
              : 'The disk becomes the disk of the new machine.'
          }
          error={errorAt('root_volume_id')}
          onChange={(root_volume_id) => onChange({ root_volume_id })}
        />
      );
    }
  }
}

type SelectProps = {
  field: FieldName;
  label: string;
  value: string;
  options: readonly Option[];
  hint?: ReactNode;
  error?: ReactNode;
  onChange: (value: string) => void;
};

function Select({ field, label, value, options, hint, error, onChange }: SelectProps) {
  return (
    <Field label={label} hint={hint} error={error}>
      {(attributes) => (
        <select {...attributes} data-field={field} value={value} onChange={({ target }) => onChange(target.value)}>
          {options.map((option) => (
            <option key={option.value} value={option.value}>
              {option.text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}
