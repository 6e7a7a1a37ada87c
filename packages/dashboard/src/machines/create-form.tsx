// The form for a new machine, and beside it the same request as code. The same request has the same idempotency key,
// so a double click or a retry after a broken connection creates only one machine.
import { MACHINE_DEFAULTS } from '@sandbar/contract/machine-states.ts';
import { Link, useNavigate } from '@tanstack/react-router';
import { type FormEvent, useRef, useState } from 'react';
import type { Schemas } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { CodeSample } from '../ui/code-sample.tsx';
import { Field } from '../ui/field.tsx';
import { ProblemText } from '../ui/problem.tsx';
import styles from './create.module.css';
import { bodyOf, bootOf, type CreateBody, type CreateValues, type Sources } from './create-body.ts';
import { boundsOf, checkValues, type FieldName, fieldOf, type Problems } from './create-check.ts';
import { keyPerBody, postMachine } from './create-request.ts';
import { CreateShape } from './create-shape.tsx';
import { CreateSource } from './create-source.tsx';
import { ExpiryField } from './expiry-field.tsx';
import form from './form.module.css';
import { KeyValueRows } from './key-value-rows.tsx';
import { Problem } from './problem.tsx';
import { createSamples } from './samples.ts';
import { useAction } from './use-action.ts';

const EMPTY: CreateValues = {
  name: '',
  vcpus: String(MACHINE_DEFAULTS.vcpus),
  memory_mb: String(MACHINE_DEFAULTS.memory_mb),
  rootfs_size_gb: String(MACHINE_DEFAULTS.rootfs_size_gb),
  source: 'image',
  stack: MACHINE_DEFAULTS.stack,
  snapshot_id: '',
  root_volume_id: '',
  env: [],
  metadata: [],
  expiry: { count: '', unit: 'hours', action: 'destroy' },
};

type Props = { quotas: Schemas['Quotas']; sources: Sources; start: Partial<CreateValues> };

export function CreateForm({ quotas, sources, start }: Props) {
  const [keyOf] = useState(keyPerBody);
  const [values, setValues] = useState(() => withDefaultDisk({ ...EMPTY, ...start }, sources));
  const [isChecked, setChecked] = useState(false);
  const element = useRef<HTMLFormElement>(null);
  const navigate = useNavigate();
  const create = useAction(
    (body: CreateBody) => postMachine(body, keyOf(body)),
    ({ id }) => {
      // A person who left the form while the request ran stays where they are.
      const isOpen = element.current !== null;
      if (isOpen) void navigate({ to: '/machines/$machineId', params: { machineId: id }, search: {} });
    },
  );
  const boot = bootOf(values, sources);
  const bounds = boundsOf(quotas, boot);
  // After the first attempt only the service checks the quotas: a machine that the attempt created may be what filled
  // them.
  const checked = create.isIdle ? bounds : boundsOf({ ...quotas, quotas: [] }, boot);
  const found = checkValues(values, checked, boot);
  const body = bodyOf(values, boot);
  const named = fieldOf(create.error);
  const errorAt = (field: FieldName) =>
    (isChecked && found[field]) || (create.error && named === field ? <ProblemText error={create.error} /> : undefined);
  const change = (next: Partial<CreateValues>) => setValues({ ...values, ...next });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setChecked(true);
    if (Object.keys(found).length === 0) create.run(body);
    else element.current?.querySelector<HTMLElement>(selectorOf(found))?.focus();
  };
  const isFull = create.isIdle && bounds.machinesLeft === 0;
  return (
    <div className={styles.page}>
      <form ref={element} noValidate onSubmit={submit} className={form.form} aria-label="New machine">
        <Field label="Name" hint="A label; it need not be unique." error={errorAt('name')}>
          {(attributes) => (
            <input
              {...attributes}
              data-field="name"
              autoComplete="off"
              value={values.name}
              onChange={({ target }) => change({ name: target.value })}
            />
          )}
        </Field>
        <CreateSource
          values={values}
          sources={sources}
          errorAt={errorAt}
          onChange={(next) => setValues(withDefaultDisk({ ...values, ...next }, sources))}
        />
        <CreateShape values={values} bounds={bounds} boot={boot} errorAt={errorAt} onChange={change} />
        <ExpiryField
          value={values.expiry}
          error={errorAt('expires_in_sec') ?? errorAt('on_expiry')}
          onChange={(expiry) => change({ expiry })}
        />
        <KeyValueRows
          label="Metadata"
          hint="Keys and values by which you find and bill the machine."
          error={errorAt('metadata')}
          rows={values.metadata}
          onChange={(metadata) => change({ metadata })}
        />
        <KeyValueRows
          label="Environment"
          hint="Variables of all its jobs and terminals. They are never shown again."
          error={errorAt('env')}
          rows={values.env}
          onChange={(env) => change({ env })}
        />
        {named ? null : <Problem error={create.error} />}
        <div className={form.buttons}>
          <Button
            type="submit"
            kind="primary"
            busy={create.isPending}
            reason={isFull ? 'The quota of machines is full. Destroy a machine first.' : undefined}
          >
            {create.isPending ? 'Creating…' : 'Create the machine'}
          </Button>
          {isFull ? (
            <span className={form.hint}>
              The quota of machines is full.{' '}
              <Link to="/quotas" hash="machines">
                See the quota of machines
              </Link>
            </span>
          ) : null}
        </div>
      </form>
      <aside className={styles.aside} aria-label="The same request as code">
        <h2>The same request</h2>
        <CodeSample samples={createSamples(location.origin, body)} />
      </aside>
    </div>
  );
}

/** Each source has its own smallest disk, so the size is set to the default for the source. */
const withDefaultDisk = (values: CreateValues, sources: Sources): CreateValues => {
  const { minGb, defaultGb } = bootOf(values, sources);
  return { ...values, rootfs_size_gb: String(Math.max(minGb, defaultGb)) };
};

const selectorOf = (problems: Problems): string =>
  Object.keys(problems)
    .map((field) => `[data-field="${field}"], [data-field="${field}"] input`)
    .join(', ');
