// Revokes an API key after the person confirms.
import { useState } from 'react';
import { api, type Schemas, unwrap } from '../api/client.ts';
import { useActions } from '../ui/actions.tsx';
import { ConfirmDialog } from '../ui/dialog.tsx';
import { RowMenu } from '../ui/row-menu.tsx';
import { isolate } from '../ui/visible-text.ts';

export function RevokeKey({ apiKey: { id, name, prefix } }: { apiKey: Schemas['ApiKey'] }) {
  const [isOpen, setOpen] = useState(false);
  const { mutate } = useActions('api-keys', ['api-keys']);
  const run = () => unwrap(api.DELETE('/v1/api-keys/{id}', { params: { path: { id } } }));
  return (
    <>
      <RowMenu label={name} actions={[{ label: 'Revoke…', isDanger: true, onSelect: () => setOpen(true) }]} />
      <ConfirmDialog
        title={`Revoke the key ${isolate(name)}?`}
        action="Revoke key"
        onConfirm={() => {
          setOpen(false);
          mutate({ doing: 'Revoking', name, run });
        }}
        isOpen={isOpen}
        onCancel={() => setOpen(false)}
      >{`The key that begins with ${prefix} is refused from the next request on. This cannot be undone.`}</ConfirmDialog>
    </>
  );
}
