// What is in a folder, and what can be done there: upload by button or drop, make a folder, move, delete, download.
import { useInfiniteQuery } from '@tanstack/react-query';
import { useMemo, useState } from 'react';
import { Button } from '../../ui/button.tsx';
import { CodeSample } from '../../ui/code-sample.tsx';
import { DataTable } from '../../ui/data-table.tsx';
import { useNotify } from '../../ui/notify.ts';
import { droppedFiles } from './dropped-files.ts';
import { entryColumns } from './entry-columns.tsx';
import { EntryDialog, type EntryTask } from './entry-dialogs.tsx';
import styles from './files.module.css';
import { type EncodedPath, pathOf } from './path.ts';
import { describeProblem } from './problem.ts';
import { type FileEntry, fileUrl, folderQuery } from './requests.ts';
import { moveBetweenRows } from './row-keys.ts';
import { uploadSamples } from './samples.ts';
import { UploadButton } from './upload-button.tsx';
import { addUploads } from './uploads.ts';
import { useWatch } from './watch.ts';

type Props = { machineId: string; path: EncodedPath; entry: FileEntry; reason: string | undefined };

export function FolderView({ machineId, path, reason }: Props) {
  const isOn = reason === undefined;
  const pollMs = useWatch(machineId, path, isOn);
  const query = useInfiniteQuery({ ...folderQuery(machineId, path), refetchInterval: pollMs, enabled: isOn });
  const [task, setTask] = useState<EntryTask>();
  const notify = useNotify();
  const [isOver, setOver] = useState(false);
  // A new array would make React mount every cell again, and lose the focus and the open menu.
  const columns = useMemo(() => entryColumns(machineId, reason, setTask), [machineId, reason]);
  const { data, error, hasNextPage, isFetchingNextPage, fetchNextPage } = query;
  const entries = (data?.pages ?? []).flatMap((page) => page.entries).toSorted(foldersFirst);
  return (
    <section
      aria-label="Folder"
      className={isOver && isOn ? `${styles.folder} ${styles.over}` : styles.folder}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={(event) => {
        event.preventDefault();
        setOver(false);
        if (!isOn) return;
        droppedFiles(event.dataTransfer).then(
          (files) => addUploads(machineId, path, files),
          (cause: Error) => notify.failed('The dropped files cannot be read', cause),
        );
      }}
    >
      <div className={styles.toolbar}>
        <UploadButton reason={reason} onChoose={(files) => addUploads(machineId, path, files)} />
        <Button reason={reason} onClick={() => setTask({ kind: 'create' })}>
          New folder
        </Button>
        {isOn ? (
          <a
            className={styles.download}
            href={fileUrl(machineId, 'archive', path)}
            download={`${path.split('/').at(-1) || 'root'}.tar`}
          >
            Download as tar
          </a>
        ) : null}
        <span className={`${styles.hint} ${styles.drop}`}>Or drop files and folders here.</span>
      </div>
      {error && isOn ? (
        <p role="alert" className={styles.problem}>
          <bdi>{describeProblem(error)}</bdi>
        </p>
      ) : null}
      {data ? (
        // biome-ignore lint/a11y/noStaticElementInteractions: the keys belong to the links in the list.
        <div className={styles.listing} onKeyDown={moveBetweenRows}>
          <DataTable
            label="Files"
            rows={entries}
            columns={columns}
            idOf={pathOf}
            empty={<EmptyFolder machineId={machineId} path={path} />}
          />
        </div>
      ) : null}
      {data || error ? null : <p role="status">Loading the folder…</p>}
      {hasNextPage ? (
        <p className={styles.toolbar}>
          <span>The first {entries.length} entries are shown.</span>
          <Button busy={isFetchingNextPage} reason={reason} onClick={() => void fetchNextPage()}>
            Show more
          </Button>
        </p>
      ) : null}
      {task ? <EntryDialog machineId={machineId} folder={path} task={task} onClose={() => setTask(undefined)} /> : null}
    </section>
  );
}

/** The API sorts by name. */
const foldersFirst = (one: FileEntry, other: FileEntry): number =>
  Number(other.type === 'directory') - Number(one.type === 'directory');

function EmptyFolder({ machineId, path }: { machineId: string; path: EncodedPath }) {
  return (
    <>
      <p>This folder is empty. Drop files here, press Upload, or use any of these:</p>
      <CodeSample samples={uploadSamples(location.origin, machineId, path)} />
    </>
  );
}
