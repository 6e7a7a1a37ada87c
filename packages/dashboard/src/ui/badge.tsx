// A state as a coloured label. The word is always there, so the colour is never the only sign.
import styles from './badge.module.css';

export type Tone = 'good' | 'wait' | 'bad' | 'quiet';

export function Badge({ tone, children }: { tone: Tone; children: string }) {
  return <span className={`${styles.badge} ${styles[tone]}`}>{children}</span>;
}
