// Edits a text file. When the file has changed since the person began to edit, saving asks first.
import { useMutation, useQueryClient } from '@tanstack/react-query';
import { useBlocker } from '@tanstack/react-router';
import { useState } from 'react';
import { Button } from '../../ui/button.tsx';
import { ChangedDialog } from './changed-dialog.tsx';
import styles from './files.module.css';
import type { EncodedPath } from './path.ts';
import { describeProblem } from './problem.ts';
import { contentQuery, type TextContent, toBlob } from './read-content.ts';
import { refreshFiles, refreshFilesSoon } from './refresh.ts';
import { fileUrl } from './requests.ts';
import { type Outcome, saveText, type Version } from './save-text.ts';

/** What the person wrote, and the version of the file that they began with. */
type Draft = { lines: string; base: TextContent };

type Props = {
  machineId: string;
  path: EncodedPath;
  name: string;
  /** The present version. It may change while the person writes. */
  content: TextContent;
  reason: string | undefined;
};

export function TextEditor({ machineId, path, name, content, reason }: Props) {
  const url = fileUrl(machineId, 'content', path);
  const queryClient = useQueryClient();
  const [draft, setDraft] = useState<Draft>();
  const save = useMutation({
    mutationFn: ({ draft: { lines, base }, known }: { draft: Draft; known: Version }): Promise<Outcome> =>
      saveText(url, toBlob(lines, base.lineEnd), known),
    onSuccess: async ({ kind }, { draft: saved }) => {
      if (kind === 'saved') await showSaved(saved);
    },
  });
  /**
   * Drops the draft once the saved text has been read back. If the person has typed more meanwhile, the draft stays and
   * is based on the saved version.
   */
  const showSaved = async ({ lines }: Draft) => {
    const query = contentQuery(machineId, path);
    await queryClient.refetchQueries({ queryKey: query.queryKey, exact: true }, { throwOnError: true });
    const fresh = queryClient.getQueryData(query.queryKey);
    setDraft((present) => {
      if (present?.lines === lines) return undefined;
      return present && fresh?.kind === 'text' && fresh.lines === lines ? { ...present, base: fresh } : present;
    });
    refreshFilesSoon(machineId);
  };
  const isDirty = draft !== undefined;
  useBlocker({
    shouldBlockFn: () => isDirty && !globalThis.confirm(`Leave ${name} without saving your changes?`),
    enableBeforeUnload: isDirty,
    disabled: !isDirty,
  });
  /** Saves, unless the file has another version than `known`. */
  const submit = (known: Version) => {
    if (draft && reason === undefined && !save.isPending) save.mutate({ draft, known });
  };
  const discard = () => {
    setDraft(undefined);
    save.reset();
    void refreshFiles(machineId);
  };
  const nothing = isDirty ? undefined : 'There is nothing to save.';
  const isOutdated = isDirty && draft.base.etag !== content.etag && !save.isPending;
  const other = save.data?.kind === 'other' ? save.data : undefined;
  return (
    <>
      <div className={styles.toolbar}>
        <Button
          kind="primary"
          busy={save.isPending}
          reason={reason ?? nothing}
          onClick={() => submit(draft?.base.etag)}
        >
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
          const base = draft?.base ?? content;
          setDraft(value === base.lines ? undefined : { lines: value, base });
        }}
        onKeyDown={(event) => {
          if (event.key !== 's' || !(event.ctrlKey || event.metaKey)) return;
          event.preventDefault();
          submit(draft?.base.etag);
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
          onSave={() => submit(other.present)}
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
