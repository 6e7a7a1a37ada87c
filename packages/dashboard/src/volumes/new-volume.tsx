// The form for a new volume.
import { VOLUME_BOUNDS } from '@sandbar/contract/volume-states.ts';
import { useQuery, useQueryClient } from '@tanstack/react-query';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { quotasQuery } from '../quotas/quotas-query.ts';
import { Field } from '../ui/field.tsx';
import { FormDialog } from '../ui/form-dialog.tsx';
import { useSingle } from '../ui/use-single.ts';
import { largestVolumeGb, reasonAgainstNewVolume } from './volume-room.ts';
import { CHANGED_BY_VOLUMES } from './volumes-query.ts';

const DEFAULT_GB = 10;

export function NewVolume({ open, onClose }: { open: boolean; onClose: () => void }) {
  const client = useQueryClient();
  const { data: quotas } = useQuery(quotasQuery);
  const create = useSingle({
    mutationFn: (body: Schemas['VolumeCreate']) => unwrap(api.POST('/v1/volumes', { body })),
    onSuccess: async () => {
      onClose();
      await Promise.all(CHANGED_BY_VOLUMES.map((key) => client.invalidateQueries({ queryKey: [key] })));
    },
  });
  const close = () => {
    create.reset();
    onClose();
  };
  const largest = largestVolumeGb(quotas);
  return (
    <FormDialog
      title="New volume"
      submitLabel="Create volume"
      isOpen={open}
      onClose={close}
      onSubmit={(form) => create.run({ name: String(form.get('name')), size_gb: Number(form.get('size')) })}
      busy={create.isPending}
      error={create.error}
      reason={reasonAgainstNewVolume(quotas)}
    >
      <Field label="Name">
        {(control) => <input {...control} name="name" maxLength={VOLUME_BOUNDS.nameLength} autoComplete="off" />}
      </Field>
      <Field
        label="Size in GiB"
        hint={`From ${VOLUME_BOUNDS.sizeGbMin} to ${largest} GiB with your quotas. Space that is never written takes no room on the host.`}
      >
        {(control) => (
          <input
            {...control}
            name="size"
            type="number"
            required
            min={VOLUME_BOUNDS.sizeGbMin}
            max={largest}
            defaultValue={Math.min(DEFAULT_GB, largest)}
          />
        )}
      </Field>
    </FormDialog>
  );
}
