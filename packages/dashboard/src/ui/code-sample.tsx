// The same request as curl, CLI, TypeScript and Python, for this server, with a button that copies it.
import { Tabs } from '@base-ui/react/tabs';
import { useRef, useState } from 'react';
import styles from './code-sample.module.css';
import { COPY_REFUSED, useCopy } from './copy.ts';

export type Sample = { label: string; code: string };

export function CodeSample({ samples }: { samples: readonly Sample[] }) {
  const [chosen, setChosen] = useState<string>();
  const sample = samples.find(({ label }) => label === chosen) ?? samples[0];
  const { outcome, copy } = useCopy(sample?.code ?? '');
  const shown = useRef<HTMLElement>(null);
  if (!sample) return null;
  return (
    <Tabs.Root value={sample.label} onValueChange={setChosen} className={styles.box}>
      <div className={styles.head}>
        <Tabs.List className={styles.tabs} aria-label="Language">
          {samples.map(({ label }) => (
            <Tabs.Tab key={label} value={label} className={styles.tab}>
              {label}
            </Tabs.Tab>
          ))}
        </Tabs.List>
        <button type="button" className={styles.copy} onClick={() => void copy(shown.current)}>
          {outcome === 'copied' ? 'Copied' : 'Copy'}
        </button>
      </div>
      {samples.map(({ label, code }) => (
        <Tabs.Panel key={label} value={label} className={styles.panel}>
          {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a box that scrolls must be reachable by keyboard. */}
          <pre tabIndex={0}>
            <code ref={label === sample.label ? shown : undefined}>{code}</code>
          </pre>
        </Tabs.Panel>
      ))}
      <p role="status" className={styles.note}>
        {outcome === 'refused' ? COPY_REFUSED : ''}
      </p>
    </Tabs.Root>
  );
}
