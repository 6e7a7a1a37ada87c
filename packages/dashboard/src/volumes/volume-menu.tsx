// What can be done with a volume: attach, detach, delete.
import { useQuery } from '@tanstack/react-query';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { loadedMachinesQuery } from '../machines/machines-query.ts';
import { useActions } from '../ui/actions.tsx';
import { ConfirmDialog } from '../ui/dialog.tsx';
import { RowMenu } from '../ui/row-menu.tsx';
import { isolate } from '../ui/visible-text.ts';
import { AttachVolume } from './attach-volume.tsx';
import { reasonAgainstBoot, reasonAgainstVolume } from './volume-reasons.ts';
import { CHANGED_BY_VOLUMES } from './volumes-query.ts';

export function VolumeMenu({ volume }: { volume: Schemas['Volume'] }) {
  const [open, setOpen] = useState<'attach' | 'delete' | undefined>();
  const { data: machines } = useQuery(loadedMachinesQuery);
  const { mutate } = useActions('volumes', CHANGED_BY_VOLUMES);
  const machine = machines?.find(({ id }) => id === volume.machine_id);
  const name = volume.name || volume.id;
  const params = { path: { id: volume.id } };
  const detach = () =>
    mutate({ doing: 'Detaching', name, run: () => unwrap(api.POST('/v1/volumes/{id}/detach', { params })) });
  const destroy = () =>
    mutate({ doing: 'Deleting', name, run: () => unwrap(api.DELETE('/v1/volumes/{id}', { params })) });
  return (
    <>
      <RowMenu
        label={name}
        actions={[
          ...(volume.kind === 'root'
            ? [
                {
                  label: 'New machine from it…',
                  reason: reasonAgainstBoot(volume),
                  link: <Link to="/machines" search={{ new: true, boot: 'disk', from: volume.id }} />,
                },
              ]
            : []),
          {
            label: 'Attach…',
            reason: reasonAgainstVolume(volume, 'attach', machine),
            onSelect: () => setOpen('attach'),
          },
          { label: 'Detach', reason: reasonAgainstVolume(volume, 'detach', machine), onSelect: detach },
          {
            label: 'Delete…',
            isDanger: true,
            reason: reasonAgainstVolume(volume, 'delete', machine),
            onSelect: () => setOpen('delete'),
          },
        ]}
      />
      <AttachVolume volume={volume} open={open === 'attach'} onClose={() => setOpen(undefined)} />
      <ConfirmDialog
        title={`Delete the volume ${isolate(name)}?`}
        action="Delete volume"
        onConfirm={() => {
          setOpen(undefined);
          destroy();
        }}
        isOpen={open === 'delete'}
        onCancel={() => setOpen(undefined)}
      >{`Its ${volume.size_gb} GiB and everything on them are gone for good.`}</ConfirmDialog>
    </>
  );
}
