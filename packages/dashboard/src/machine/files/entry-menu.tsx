// What can be done with a file or folder of the list.
import { RowMenu } from '../../ui/row-menu.tsx';
import { visibleText } from '../../ui/visible-text.ts';
import type { EntryTask } from './entry-dialogs.tsx';
import { pathOf } from './path.ts';
import { type FileEntry, fileUrl } from './requests.ts';

type Props = {
  machineId: string;
  entry: FileEntry;
  reason: string | undefined;
  onTask: (task: EntryTask) => void;
};

export function EntryMenu({ machineId, entry, reason, onTask }: Props) {
  const isFolder = entry.type === 'directory';
  const url = fileUrl(machineId, isFolder ? 'archive' : 'content', pathOf(entry));
  const noContent = entry.type === 'other' ? 'A device, pipe or socket has no content.' : undefined;
  return (
    <RowMenu
      label={visibleText(entry.name)}
      actions={[
        {
          label: isFolder ? 'Download as tar' : 'Download',
          reason: reason ?? noContent,
          // biome-ignore lint/a11y/useAnchorContent: the menu puts the label into the link.
          link: <a href={url} download={isFolder ? `${entry.name}.tar` : entry.name} />,
        },
        { label: 'Rename or move…', reason, onSelect: () => onTask({ kind: 'move', entry }) },
        { label: 'Delete…', reason, isDanger: true, onSelect: () => onTask({ kind: 'remove', entry }) },
      ]}
    />
  );
}
