// Tells a person how an action ended, in a corner of the page. A success disappears by itself; a problem stays until it
// is dismissed.
import { Toast } from '@base-ui/react/toast';

/** `problem`: the error that the toast explains; undefined for a success. */
export type ToastData = { problem?: Error };

type Notify = {
  /** Says what was done, such as "Stopped worker". */
  done: (title: string) => void;
  /** Says what was not done, such as "worker was not stopped", and why. */
  failed: (title: string, error: Error) => void;
};

export function useNotify(): Notify {
  const { add } = Toast.useToastManager<ToastData>();
  return {
    done: (title) => void add({ title, type: 'done' }),
    failed: (title, problem) =>
      void add({
        title,
        description: problem.message,
        type: 'failed',
        timeout: 0,
        data: { problem },
      }),
  };
}
