// The part of the form that says how large the machine is, within what the account has left.
import type { ReactNode } from 'react';
import { Field } from '../ui/field.tsx';
import type { Boot, CreateValues } from './create-body.ts';
import type { Bounds, FieldName } from './create-check.ts';
import styles from './form.module.css';

type Props = {
  values: CreateValues;
  bounds: Bounds;
  boot: Boot;
  errorAt: (field: FieldName) => ReactNode;
  onChange: (next: Partial<CreateValues>) => void;
};

const SIZES = [
  { field: 'vcpus', label: 'vCPUs', step: 1 },
  { field: 'memory_mb', label: 'Memory (MiB)', step: 128 },
  { field: 'rootfs_size_gb', label: 'Disk (GiB)', step: 1 },
] as const;

export function CreateShape({ values, bounds, boot, errorAt, onChange }: Props) {
  return (
    <div className={styles.three}>
      {SIZES.map(({ field, label, step }) => {
        const { min, max, left, limit } = bounds[field];
        const isOfSnapshot = boot.isMemory && field !== 'rootfs_size_gb';
        const remaining = max === left ? `, ${left} of ${limit} left` : '';
        const range = max < min ? `At least ${min}${remaining}` : `${min} to ${max}${remaining}`;
        return (
          <Field key={field} label={label} hint={isOfSnapshot ? 'As in the snapshot' : range} error={errorAt(field)}>
            {(attributes) => (
              <input
                {...attributes}
                data-field={field}
                type="number"
                inputMode="numeric"
                min={min}
                max={max}
                step={step}
                disabled={isOfSnapshot}
                value={isOfSnapshot ? '' : values[field]}
                onChange={({ target }) => onChange({ [field]: target.value })}
              />
            )}
          </Field>
        );
      })}
    </div>
  );
}
