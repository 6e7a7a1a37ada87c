// The dialogs that make a folder, move a file or folder, and delete one.
import { useMutation } from '@tanstack/react-query';
import { useState } from 'react';
import { ConfirmDialog } from '../../ui/dialog.tsx';
import { Field } from '../../ui/field.tsx';
import { FormDialog } from '../../ui/form-dialog.tsx';
import { visibleText } from '../../ui/visible-text.ts';
import { type EncodedPath, pathOf, resolvePath } from './path.ts';
import { isConflict } from './problem.ts';
import { refreshFiles } from './refresh.ts';
import { createFolder, type FileEntry, moveFile, removeFile } from './requests.ts';

export type EntryTask = { kind: 'create' } | { kind: 'move' | 'remove'; entry: FileEntry };

type Props = {
  machineId: string;
  /** The folder that is shown. A relative name is resolved in it. */
  folder: EncodedPath;
  onClose: () => void;
  /** Called with the new path of the entry, or with undefined after a delete. */
  onDone?: ((path: EncodedPath | undefined) => void) | undefined;
};

export function EntryDialog({ task, ...props }: Props & { task: EntryTask }) {
  if (task.kind === 'create') return <CreateDialog {...props} />;
  if (task.kind === 'move') return <MoveDialog {...props} entry={task.entry} />;
  return <RemoveDialog {...props} entry={task.entry} />;
}

/** After a success: calls `onDone`, closes the dialog and refreshes the list. */
function useTask<Input>(
  { machineId, onClose, onDone }: Props,
  act: (input: Input) => Promise<EncodedPath | undefined>,
) {
  return useMutation({
    mutationFn: act,
    onSuccess: async (path) => {
      onDone?.(path);
      onClose();
      await refreshFiles(machineId);
    },
  });
}

function CreateDialog(props: Props) {
  const [name, setName] = useState('');
  const create = useTask(props, async () =>
    pathOf(await createFolder(props.machineId, resolvePath(props.folder, name))),
  );
  return (
    <FormDialog
      isOpen
      title="New folder"
      submitLabel="Create the folder"
      busy={create.isPending}
      reason={name === '' ? 'Give the folder a name.' : undefined}
      error={create.error}
      onSubmit={() => create.mutate(undefined)}
      onClose={props.onClose}
    >
      <Field label="Name">
        {(control) => (
          <input
            {...control}
            value={name}
            onChange={({ target }) => setName(target.value)}
            autoComplete="off"
            spellCheck={false}
          />
        )}
      </Field>
    </FormDialog>
  );
}

function MoveDialog({ entry, ...props }: Props & { entry: FileEntry }) {
  const [name, setName] = useState(entry.name);
  const move = useTask(props, async (overwrite: boolean) =>
    pathOf(await moveFile(props.machineId, pathOf(entry), resolvePath(props.folder, name), overwrite)),
  );
  const isTaken = isConflict(move.error) && /exist/.test(move.error?.message ?? '');
  return (
    <FormDialog
      isOpen
      title={
        <>
          Rename or move <bdi>{visibleText(entry.name)}</bdi>
        </>
      }
      submitLabel={isTaken ? 'Replace what is there' : 'Move'}
      kind={isTaken ? 'danger' : 'primary'}
      busy={move.isPending}
      reason={name === '' || name === entry.name ? 'Give another name or path.' : undefined}
      error={move.error}
      onSubmit={() => move.mutate(isTaken)}
      onClose={props.onClose}
    >
      <Field label="New name, or a path that begins with /">
        {(control) => (
          <input
            {...control}
            value={name}
            onChange={({ target }) => {
              setName(target.value);
              move.reset();
            }}
            autoComplete="off"
            spellCheck={false}
          />
        )}
      </Field>
    </FormDialog>
  );
}

function RemoveDialog({ entry, ...props }: Props & { entry: FileEntry }) {
  const remove = useTask(props, async (recursive: boolean) => {
    await removeFile(props.machineId, pathOf(entry), recursive);
    return undefined;
  });
  const isFull = entry.type === 'directory' && isConflict(remove.error) && /empty/.test(remove.error?.message ?? '');
  return (
    <ConfirmDialog
      isOpen
      title={
        <>
          Delete <bdi>{visibleText(entry.name)}</bdi>?
        </>
      }
      action={isFull ? 'Delete everything in it' : 'Delete'}
      busy={remove.isPending}
      error={isFull ? null : remove.error}
      onConfirm={() => remove.mutate(isFull)}
      onCancel={props.onClose}
    >
      {isFull ? (
        <p role="alert">The folder is not empty. Delete it with all files and folders in it? This cannot be undone.</p>
      ) : (
        <p>
          <code>
            <bdi>{visibleText(entry.path)}</bdi>
          </code>{' '}
          is deleted in the machine. This cannot be undone.
        </p>
      )}
    </ConfirmDialog>
  );
}
