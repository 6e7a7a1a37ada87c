// A button, styled as a link, that downloads CSV and shows the reason when the download fails.
import { useState } from 'react';
import { ProblemText } from '../ui/problem.tsx';
import styles from './billing.module.css';

type Props = {
  /** What is downloaded, for screen readers. */
  label: string;
  download: () => Promise<void>;
};

export function CsvButton({ label, download }: Props) {
  const [error, setError] = useState<Error | null>(null);
  const start = () => {
    setError(null);
    download().catch((cause: Error) => setError(cause));
  };
  return (
    <>
      <button type="button" className={styles.link} aria-label={`Download as CSV: ${label}`} onClick={start}>
        Download as CSV
      </button>
      {error ? (
        <span role="alert" className={styles.bad}>
          <ProblemText error={error} />
        </span>
      ) : null}
    </>
  );
}
