// Asks what to do when a file was changed or deleted in the machine while a person edited it.
import { Button } from '../../ui/button.tsx';
import { ConfirmDialog } from '../../ui/dialog.tsx';

type Props = {
  name: string;
  change: 'changed' | 'deleted';
  onSave: () => void;
  onDiscard: () => void;
  onClose: () => void;
};

export function ChangedDialog({ name, change, onSave, onDiscard, onClose }: Props) {
  const isDeleted = change === 'deleted';
  return (
    <ConfirmDialog
      title={
        <>
          <bdi>{name}</bdi> was {change} in the machine
        </>
      }
      isOpen
      action={isDeleted ? 'Create it again' : 'Replace it'}
      cancel="Keep editing"
      other={isDeleted ? null : <Button onClick={onDiscard}>Discard my changes</Button>}
      onConfirm={onSave}
      onCancel={onClose}
    >
      <p>
        {isDeleted
          ? 'The file does not exist any more. You can create it again with your text.'
          : 'Another program or person wrote this file after you opened it. If you save, your text replaces theirs.'}
      </p>
    </ConfirmDialog>
  );
}
