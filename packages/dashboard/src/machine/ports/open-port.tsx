// Opens a port in a new tab.
import { useMutation } from '@tanstack/react-query';
import { Button } from '../../ui/button.tsx';
import type { Note } from './note.tsx';
import { linkOf } from './port-link.ts';
import type { Port } from './ports-tab.tsx';

type Props = { machineId: string; port: Port; reason?: string | undefined; onNote: (note: Note) => void };

export function OpenPort({ machineId, port, reason, onNote }: Props) {
  const open = useMutation({
    mutationFn: async (tab: Window | null) => {
      if (tab === null) throw new Error('The browser did not allow a new tab. Allow pop-ups for this page.');
      // The page that the machine serves must not get access to this window.
      tab.opener = null;
      try {
        tab.location.replace((await linkOf(machineId, port)).url);
      } catch (error) {
        tab.close();
        throw error;
      }
    },
    onError: ({ message }) => onNote({ text: message }),
  });
  return (
    // Open the tab in the click itself. Browsers block a tab that opens later, when the token has arrived.
    <Button busy={open.isPending} reason={reason} onClick={() => open.mutate(globalThis.open('', '_blank'))}>
      Open
    </Button>
  );
}
