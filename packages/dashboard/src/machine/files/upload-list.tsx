// The uploads to a machine: how far each is, and what to do when one fails or would replace a file.
import { useSyncExternalStore } from 'react';
import { Button } from '../../ui/button.tsx';
import styles from './files.module.css';
import { formatBytes } from './format.ts';
import {
  cancelUpload,
  dismissEnded,
  isEnded,
  listUploads,
  onUploadsChange,
  replaceExisting,
  retryUpload,
  type Upload,
} from './uploads.ts';

/** A drop may contain thousands of files, so only this many are shown. Uploads that need a decision come first. */
const SHOWN = 50;
const ORDER: Record<Upload['state'], number> = { exists: 0, failed: 1, sending: 2, waiting: 3, done: 4, canceled: 5 };

export function UploadList({ machineId }: { machineId: string }) {
  const uploads = useSyncExternalStore(onUploadsChange, listUploads).filter((one) => one.machineId === machineId);
  if (uploads.length === 0) return null;
  const shown = uploads.toSorted((one, other) => ORDER[one.state] - ORDER[other.state]).slice(0, SHOWN);
  const done = uploads.filter(({ state }) => state === 'done').length;
  const existing = uploads.filter(({ state }) => state === 'exists');
  return (
    <section aria-label="Uploads" className={styles.uploads}>
      <div className={styles.toolbar}>
        <span role="status">
          {done} of {uploads.length} uploaded
        </span>
        {existing.length > 1 ? (
          <Button kind="danger" onClick={() => existing.map(({ id }) => replaceExisting(id))}>
            Replace all {existing.length}
          </Button>
        ) : null}
        {uploads.some(isEnded) ? <Button onClick={() => dismissEnded(machineId)}>Clear the finished</Button> : null}
      </div>
      <ul>
        {shown.map((upload) => (
          <UploadRow key={upload.id} upload={upload} />
        ))}
      </ul>
      {uploads.length > SHOWN ? <p className={styles.hint}>And {uploads.length - SHOWN} more.</p> : null}
    </section>
  );
}

function UploadRow({ upload }: { upload: Upload }) {
  const { id, name, state, problem } = upload;
  return (
    <li>
      <bdi className={styles.uploadName}>{name}</bdi>
      {state === 'sending' ? (
        <progress aria-label={`Upload of ${name}`} value={upload.sentBytes} max={Math.max(upload.file.size, 1)} />
      ) : null}
      <span className={state === 'failed' ? styles.problem : styles.hint}>
        {state === 'failed' ? <bdi>{problem}</bdi> : describeState(upload)}
      </span>
      <span className={styles.uploadButtons}>
        {state === 'exists' ? (
          <Button kind="danger" onClick={() => replaceExisting(id)}>
            Replace
          </Button>
        ) : null}
        {state === 'failed' ? <Button onClick={() => retryUpload(id)}>Try again</Button> : null}
        {isEnded(upload) ? null : (
          <Button onClick={() => cancelUpload(id)}>{state === 'exists' ? 'Skip' : 'Cancel'}</Button>
        )}
      </span>
    </li>
  );
}

function describeState({ state, sentBytes, file }: Upload): string {
  switch (state) {
    case 'waiting':
      return `waiting, ${formatBytes(file.size)}`;
    case 'sending': {
      if (sentBytes >= file.size) return 'The machine is writing it…';
      const percent = Math.floor((100 * sentBytes) / file.size);
      return `${percent} %, ${formatBytes(sentBytes)} of ${formatBytes(file.size)}`;
    }
    case 'exists':
      return 'A file of this name exists already.';
    case 'canceled':
      return 'Cancelled. Nothing was written to the machine.';
    default:
      return `${state}, ${formatBytes(file.size)}`;
  }
}
