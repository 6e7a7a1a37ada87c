// Makes a port public after the person confirms, or private again.
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useState } from 'react';
import { api, unwrap } from '../../api/client.ts';
import { Button } from '../../ui/button.tsx';
import { ConfirmDialog } from '../../ui/dialog.tsx';
import type { Note } from './note.tsx';
import { type Port, portsQuery } from './ports-tab.tsx';

type Props = { machineId: string; port: Port; reason?: string | undefined; onNote: (note: Note) => void };

export function AccessButton({ machineId, port: { port, process, access, url }, reason, onNote }: Props) {
  const queryClient = useQueryClient();
  const [isAsking, setAsking] = useState(false);
  const change = useMutation({
    mutationFn: (wanted: Port['access']) =>
      unwrap(
        api.PUT('/v1/machines/{id}/ports/{port}', {
          params: { path: { id: machineId, port: String(port) } },
          body: { access: wanted },
        }),
      ),
    onSuccess: async (changed) => {
      setAsking(false);
      onNote({ text: `Port ${port} is ${changed.access}.` });
      await queryClient.invalidateQueries(portsQuery(machineId));
    },
    onError: ({ message }) => onNote({ text: message }),
  });
  if (access === 'public') {
    return (
      <Button busy={change.isPending} reason={reason} onClick={() => change.mutate('private')}>
        Make private
      </Button>
    );
  }
  return (
    <>
      <Button reason={reason} onClick={() => setAsking(true)}>
        Make public…
      </Button>
      <ConfirmDialog
        isOpen={isAsking}
        title={`Make port ${port} public?`}
        action="Make it public"
        busy={change.isPending}
        error={change.error}
        onConfirm={() => change.mutate('public')}
        onCancel={() => setAsking(false)}
      >
        <p>
          Everybody who can reach this server can then use what <bdi>{process ?? 'the program'}</bdi> serves at{' '}
          <code>{url}</code>, without a password, a key or a link from you. Only the program itself can refuse them.
        </p>
        <p>It stays public until you make it private again, also after a restart of the machine.</p>
      </ConfirmDialog>
    </>
  );
}
