// The form that attaches a volume to a machine.
import { defaultMountPath, VOLUME_BOUNDS } from '@sandbar/contract/volume-states.ts';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { reasonAgainst } from '../machines/actions.ts';
import { machinesQuery } from '../machines/machines-query.ts';
import { Field } from '../ui/field.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { useSingle } from '../ui/use-single.ts';
import { isolate } from '../ui/visible-text.ts';
import { CHANGED_BY_VOLUMES, volumesQuery } from './volumes-query.ts';

type Props = { volume: Schemas['Volume']; open: boolean; onClose: () => void };

export function AttachVolume({ volume, open, onClose }: Props) {
  const client = useQueryClient();
  const attach = useSingle({
    mutationFn: (body: Schemas['VolumeAttach']) =>
      unwrap(api.POST('/v1/volumes/{id}/attach', { params: { path: { id: volume.id } }, body })),
    onSuccess: () => onClose(),
    onSettled: () => Promise.all(CHANGED_BY_VOLUMES.map((key) => client.invalidateQueries({ queryKey: [key] }))),
  });
  const close = () => {
    attach.reset();
    onClose();
  };
  const submit = (form: FormData) => {
    const path = String(form.get('path'));
    attach.run({ machine_id: String(form.get('machine')), ...(path === '' ? {} : { mount_path: path }) });
  };
  return (
    <FormDialog
      title={`Attach ${isolate(volume.name || volume.id)}`}
      submitLabel="Attach"
      isOpen={open}
      onClose={close}
      onSubmit={submit}
      busy={attach.isPending}
      error={attach.error}
    >
      <Field
        label="Machine"
        hint="Running or stopped. A volume on another host is copied to the host of the machine first."
      >
        {(control) => (
          <select {...control} name="machine" required>
            <MachineOptions />
          </select>
        )}
      </Field>
      <Field label="Mount path" hint="An absolute path. It is made when it is not there.">
        {(control) => (
          <input
            {...control}
            name="path"
            maxLength={VOLUME_BOUNDS.mountPathLength}
            placeholder={defaultMountPath(volume.id)}
            autoComplete="off"
            spellCheck={false}
          />
        )}
      </Field>
    </FormDialog>
  );
}

/** Lists every machine. A machine that cannot take a volume now is disabled and shows the reason. */
function MachineOptions() {
  const { data: machines = [] } = useQuery({ ...machinesQuery, refetchInterval: false });
  const { data: volumes = [] } = useQuery({ ...volumesQuery, refetchInterval: false });
  if (machines.length === 0) return <option value="">There are no machines</option>;
  return machines.map((machine) => {
    const attached = volumes.filter(({ kind, machine_id }) => kind === 'data' && machine_id === machine.id).length;
    const reason =
      attached >= VOLUME_BOUNDS.perMachine
        ? `It has ${VOLUME_BOUNDS.perMachine} volumes, and no machine can have more.`
        : reasonAgainst(machine, 'attach');
    return (
      <option key={machine.id} value={machine.id} disabled={reason !== undefined}>
        {`${isolate(machine.name || machine.id)} (${reason ?? machine.state})`}
      </option>
    );
  });
}
