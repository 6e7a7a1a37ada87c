// The cells for the name and the state of a volume or snapshot in a list.
import { Badge, type Tone } from './badge.tsx';
import styles from './clipped.module.css';
import { isolate } from './visible-text.ts';

/** The name, or the id when there is no name. The tooltip has both. */
export function NameCell({ resource: { id, name } }: { resource: { id: string; name: string } }) {
  return (
    <bdi className={styles.clipped} title={`${isolate(name)} ${id}`}>
      {name || <code>{id}</code>}
    </bdi>
  );
}

type StateProps = { resource: { state: string; error: string | null }; tone: Tone };

/** The state with the error, if there is one. */
export function StateCell({ resource: { state, error }, tone }: StateProps) {
  return (
    <span title={error ?? undefined}>
      <Badge tone={tone}>{error === null ? state : `${state}: ${error}`}</Badge>
    </span>
  );
}
