// The tab "files" of a machine: the folder or the file that the URL names.
import { useQuery } from '@tanstack/react-query';
import { getRouteApi } from '@tanstack/react-router';
import type { Schemas } from '../../api/client.ts';
import { Breadcrumbs } from './breadcrumbs.tsx';
import { FileView } from './file-view.tsx';
import styles from './files.module.css';
import { FolderView } from './folder-view.tsx';
import { HOME, readPath } from './path.ts';
import { describeProblem } from './problem.ts';
import { placeQuery } from './requests.ts';
import { UploadList } from './upload-list.tsx';

const route = getRouteApi('/signed-in/machines/$machineId');

export function FilesTab({ machine }: { machine: Schemas['Machine'] }) {
  const { path: address } = route.useSearch();
  const path = readPath(address ?? HOME);
  const reason = machine.state === 'running' ? undefined : `Files need a running machine. It is ${machine.state}.`;
  const { data: place, error } = useQuery({ ...placeQuery(machine.id, path), enabled: reason === undefined });
  const View = place?.isFolder ? FolderView : FileView;
  return (
    <>
      <Breadcrumbs path={path} />
      <UploadList machineId={machine.id} />
      {reason === undefined ? null : (
        <p role="status" className={styles.notice}>
          {reason} {machine.state === 'stopped' ? 'Start it to see and change its files.' : ''}
        </p>
      )}
      {error && reason === undefined ? (
        <p role="alert" className={styles.problem}>
          <bdi>{describeProblem(error)}</bdi>
        </p>
      ) : null}
      {place ? <View key={path} machineId={machine.id} path={path} entry={place.entry} reason={reason} /> : null}
      {place || error || reason !== undefined ? null : <p role="status">Loading the files…</p>}
    </>
  );
}
