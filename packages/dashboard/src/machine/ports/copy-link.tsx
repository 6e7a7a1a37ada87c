// Copies the URL of a port. When the browser refuses, the URL is shown and selected.
import { useMutation } from '@tanstack/react-query';
import { Button } from '../../ui/button.tsx';
import { COPY_REFUSED, copyText } from '../../ui/copy.ts';
import type { Note } from './note.tsx';
import { linkOf } from './port-link.ts';
import type { Port } from './ports-tab.tsx';

type Props = { machineId: string; port: Port; reason?: string | undefined; onNote: (note: Note) => void };

export function CopyLink({ machineId, port, reason, onNote }: Props) {
  const copy = useMutation({
    mutationFn: async (): Promise<Note> => {
      const { url, expiresAt } = await linkOf(machineId, port);
      const validity =
        expiresAt === undefined
          ? 'Everybody can use it.'
          : `Whoever has it can use the port until ${new Date(expiresAt).toLocaleTimeString()}.`;
      if (await copyText(url)) return { text: `The link to port ${port.port} was copied. ${validity}` };
      return { text: `${COPY_REFUSED} ${validity}`, link: url };
    },
    onSuccess: onNote,
    onError: ({ message }) => onNote({ text: message }),
  });
  return (
    <Button busy={copy.isPending} reason={reason} onClick={() => copy.mutate()}>
      Copy link
    </Button>
  );
}
