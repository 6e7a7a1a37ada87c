// One file: its properties, its actions, and an editor when it is a small text.
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import { useState } from 'react';
import { Button } from '../../ui/button.tsx';
import { type Draft, isUnsaved } from './draft.ts';
import { EntryDialog, type EntryTask } from './entry-dialogs.tsx';
import styles from './files.module.css';
import { formatBytes, formatTime } from './format.ts';
import { type EncodedPath, folderOf } from './path.ts';
import { describeProblem } from './problem.ts';
import { contentQuery, TEXT_BYTES_MAX } from './read-content.ts';
import { type FileEntry, fileUrl } from './requests.ts';
import { TextEditor } from './text-editor.tsx';
import { useWatch } from './watch.ts';

const route = getRouteApi('/signed-in/machines/$machineId');

type Props = { machineId: string; path: EncodedPath; entry: FileEntry; reason: string | undefined };

export function FileView({ machineId, path, entry, reason }: Props) {
  const navigate = route.useNavigate();
  const [task, setTask] = useState<EntryTask>();
  const folder = folderOf(path);
  /**
   * Goes to the new path of the file, or to its folder after a delete. After a delete the question about unsaved
   * changes is skipped.
   */
  const open = (next: EncodedPath | undefined) =>
    void navigate({ search: { tab: 'files', path: next ?? folder }, replace: true, ignoreBlocker: next === undefined });
  return (
    <section aria-label="File">
      <div className={styles.toolbar}>
        {reason === undefined && entry.type !== 'other' ? (
          <a className={styles.download} href={fileUrl(machineId, 'content', path)} download={entry.name}>
            Download
          </a>
        ) : null}
        <Button reason={reason} onClick={() => setTask({ kind: 'move', entry })}>
          Rename or move
        </Button>
        <Button kind="danger" reason={reason} onClick={() => setTask({ kind: 'remove', entry })}>
          Delete
        </Button>
        <span className={styles.hint}>
          {formatBytes(entry.size)}, mode {entry.mode}, <bdi>{`${entry.user}:${entry.group}`}</bdi>, changed{' '}
          <time dateTime={entry.modified_at}>{formatTime(entry.modified_at)}</time>
          {entry.target === undefined ? null : (
            <>
              , link to <bdi>{entry.target}</bdi>
            </>
          )}
        </span>
      </div>
      {entry.type === 'other' ? (
        <p>This is a device, a pipe or a socket. It has no content to show.</p>
      ) : (
        <FileText machineId={machineId} path={path} entry={entry} reason={reason} />
      )}
      {task ? (
        <EntryDialog
          machineId={machineId}
          folder={folder}
          task={task}
          onClose={() => setTask(undefined)}
          onDone={open}
        />
      ) : null}
    </section>
  );
}

function FileText({ machineId, path, entry, reason }: Props) {
  const isOn = reason === undefined;
  const pollMs = useWatch(machineId, folderOf(path), isOn, path);
  const [draft, setDraft] = useState<Draft>();
  const isLarge = entry.size > TEXT_BYTES_MAX;
  const { data, error } = useQuery({
    ...contentQuery(machineId, path),
    refetchInterval: pollMs,
    enabled: isOn && !isLarge,
  });
  const content = isLarge ? undefined : data;
  const text = content?.kind === 'text' ? content : undefined;
  const none = content?.kind === 'none' ? content : undefined;
  // An unsaved draft stays when another program makes the file something that cannot be edited.
  const shown = text ?? (isUnsaved(draft) ? draft?.base : undefined);
  if (shown) {
    const editor = { machineId, path, name: entry.name, content: shown, isGone: text === undefined, reason };
    return <TextEditor {...editor} draft={draft} setDraft={setDraft} />;
  }
  if (error && isOn) {
    return (
      <p role="alert" className={styles.problem}>
        <bdi>{describeProblem(error)}</bdi>
      </p>
    );
  }
  const why = isLarge ? 'It is larger than 1 MiB.' : none?.why;
  if (why === undefined) return <p role="status">Loading the file…</p>;
  return <p>{why} Download it to look at it.</p>;
}
