// How a command runs: directory, timeout, and what happens to its input and output.
import { EXEC_BOUNDS } from '@sandbar/contract/exec-bounds.ts';
import type { Schemas } from '../../api/client.ts';
import styles from './command-box.module.css';

export function CommandOptions() {
  return (
    <details className={styles.options}>
      <summary>Options</summary>
      <div className={styles.fields}>
        <label>
          Working directory
          <input
            name="cwd"
            placeholder="the image's, else the home"
            pattern="/.*"
            maxLength={4096}
            title="An absolute path"
          />
        </label>
        <label>
          Timeout, seconds
          <input
            name="timeout"
            type="number"
            min={1}
            max={EXEC_BOUNDS.timeoutSecMax}
            placeholder={String(EXEC_BOUNDS.timeoutSecDefault)}
          />
        </label>
        <label className={styles.check}>
          <input name="merge" type="checkbox" defaultChecked />
          Put stderr into stdout, in the order in which both were written
        </label>
        <label className={styles.check}>
          <input name="stdin" type="checkbox" />
          Keep stdin open, to write to it later
        </label>
      </div>
    </details>
  );
}

/** The fields of the form as fields of the request. An empty field is left out. */
export function optionsOf(
  form: FormData,
): Pick<Schemas['ExecCreate'], 'cwd' | 'timeout_sec' | 'merge_output' | 'stdin_open'> {
  const cwd = String(form.get('cwd') ?? '');
  const timeout = String(form.get('timeout') ?? '');
  return {
    ...(cwd === '' ? {} : { cwd }),
    timeout_sec: timeout === '' ? EXEC_BOUNDS.timeoutSecDefault : Number(timeout),
    merge_output: form.has('merge'),
    stdin_open: form.has('stdin'),
  };
}
