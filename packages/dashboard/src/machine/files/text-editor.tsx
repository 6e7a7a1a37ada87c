// Edits a text file. When the file has changed since the person began to edit, saving asks first.
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useBlocker } from '@tanstack/react-router';
import type { Dispatch, SetStateAction } from 'react';
import { Button } from '../../ui/button.tsx';
import { ChangedDialog } from './changed-dialog.tsx';
import { type Draft, draftAfterRead, isUnread, isUnsaved } from './draft.ts';
import styles from './files.module.css';
import type { EncodedPath } from './path.ts';
import { describeProblem } from './problem.ts';
import { contentQuery, type TextContent, toBlob } from './read-content.ts';
import { refreshFiles, refreshFilesSoon } from './refresh.ts';
import { fileUrl } from './requests.ts';
import { type Outcome, saveText, type Version } from './save-text.ts';

type Props = {
  machineId: string;
  path: EncodedPath;
  name: string;
  /** The present version. It may change while the person writes. */
  content: TextContent;
  /** Whether the file is no longer a text that can be edited. Then `content` is the base of the draft. */
  isGone: boolean;
  draft: Draft | undefined;
  setDraft: Dispatch<SetStateAction<Draft | undefined>>;
  reason: string | undefined;
};

type Saving = { draft: Draft; readKnown: () => Promise<Version> };

export function TextEditor({ machineId, path, name, content, isGone, draft: stored, setDraft, reason }: Props) {
  const url = fileUrl(machineId, 'content', path);
  const queryClient = useQueryClient();
  const draft = draftAfterRead(stored, content);
  const save = useMutation({
    mutationFn: async ({ draft: { lines, base }, readKnown }: Saving): Promise<Outcome> =>
      saveText(url, toBlob(lines, base.lineEnd), await readKnown()),
    onSuccess: async ({ kind }, { draft: { lines } }) => {
      if (kind !== 'saved') return;
      setDraft((present) => present && { ...present, saved: lines });
      // The text is saved even when it cannot be read back now. A later read shows it.
      await queryClient.refetchQueries({ queryKey: contentQuery(machineId, path).queryKey, exact: true });
      refreshFilesSoon(machineId);
    },
  });
  /** The version that the draft is based on. After a save it may have to be read first. */
  const readBase = async (edited: Draft): Promise<Version> => {
    if (!isUnread(edited, content)) return edited.base.etag;
    const fresh = await queryClient.fetchQuery({ ...contentQuery(machineId, path), staleTime: 0 });
    return fresh.kind === 'text' && fresh.lines === edited.saved ? fresh.etag : edited.base.etag;
  };
  const isDirty = isUnsaved(draft);
  useBlocker({
    shouldBlockFn: () => isDirty && !globalThis.confirm(`Leave ${name} without saving your changes?`),
    enableBeforeUnload: isDirty,
    disabled: !isDirty,
  });
  /** Saves, unless the file has another version than `known`. */
  const submit = (known: (edited: Draft) => Version | Promise<Version>) => {
    if (!draft || !isDirty || reason !== undefined || save.isPending) return;
    save.mutate({ draft, readKnown: async () => known(draft) });
  };
  const discard = () => {
    setDraft(undefined);
    save.reset();
    void refreshFiles(machineId);
  };
  const nothing = isDirty ? undefined : 'There is nothing to save.';
  const isOutdated = isDirty && (isGone || draft?.base.etag !== content.etag) && !save.isPending;
  const other = save.data?.kind === 'other' ? save.data : undefined;
  return (
    <>
      <div className={styles.toolbar}>
        <Button kind="primary" busy={save.isPending} reason={reason ?? nothing} onClick={() => submit(readBase)}>
          {save.isPending ? 'Saving…' : 'Save'}
        </Button>
        <Button reason={nothing} onClick={discard}>
          Discard the changes
        </Button>
        <span role="status" className={styles.hint}>
          {describeDraft(isDirty, isOutdated, save.data?.kind === 'saved')}
        </span>
      </div>
      <textarea
        className={styles.editor}
        aria-label={`Text of ${name}`}
        value={draft?.lines ?? content.lines}
        readOnly={reason !== undefined}
        spellCheck={false}
        wrap="off"
        rows={24}
        onChange={({ target: { value } }) => {
          const next = { ...(draft ?? { base: content }), lines: value };
          setDraft(value === next.base.lines && draft?.saved === undefined ? undefined : next);
        }}
        onKeyDown={(event) => {
          if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          submit(readBase);
        }}
      />
      {save.error ? (
        <p role="alert" className={styles.problem}>
          <bdi>{describeProblem(save.error)}</bdi> Your changes are still here.
        </p>
      ) : null}
      {other ? (
        <ChangedDialog
          name={name}
          change={other.present === undefined ? 'deleted' : 'changed'}
          onSave={() => submit(() => other.present)}
          onDiscard={discard}
          onClose={save.reset}
        />
      ) : null}
    </>
  );
}

function describeDraft(isDirty: boolean, isOutdated: boolean, isSaved: boolean): string {
  if (isOutdated) return 'The file has changed in the machine since you began.';
  if (isDirty) return 'Changed, not saved.';
  return isSaved ? 'Saved.' : '';
}
