// The line with the outcome of the last action on a port.
import { selectText } from '../../ui/copy.ts';
import styles from './ports.module.css';

/** `link`: a URL that the person has to copy. */
export type Note = { text: string; link?: string };

export function NoteLine({ note: { text, link } }: { note: Note }) {
  return (
    <div role="status" className={styles.note}>
      <bdi>{text}</bdi>
      {/* The text is selected when it appears. */}
      {link === undefined ? null : (
        <code key={link} ref={selectText}>
          {link}
        </code>
      )}
    </div>
  );
}
