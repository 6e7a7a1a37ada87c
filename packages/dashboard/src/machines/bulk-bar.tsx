// Stops or destroys the selected machines. A failure stays, with its reason, until it is dismissed.
import { useState } from 'react';
import type { Schemas } from '../api/client.ts';
import { Button } from '../ui/button.tsx';
import { ConfirmDialog } from '../ui/dialog.tsx';
import { Failure } from '../ui/failure.tsx';
import { reasonAgainst } from './actions.ts';
import { type BulkAction, type BulkFailure, runBulk } from './bulk.ts';
import styles from './machines.module.css';
import { useAction } from './use-action.ts';

type Machine = Schemas['Machine'];
type Request = { action: BulkAction; machines: readonly Machine[] };

export function BulkBar({ machines, onDone }: { machines: readonly Machine[]; onDone: () => void }) {
  const [failures, setFailures] = useState<readonly BulkFailure[]>([]);
  // The machines that the question is about. They stay the same when the list changes while the question is open.
  const [asked, setAsked] = useState<readonly Machine[]>();
  const bulk = useAction(
    ({ action, machines: wanted }: Request) => runBulk(wanted, action),
    (failed) => {
      setFailures((earlier) => [...earlier.filter((old) => !failed.some((now) => isSame(old, now))), ...failed]);
      setAsked(undefined);
      onDone();
    },
  );
  const stoppable = machines.filter((machine) => reasonAgainst(machine, 'stop') === undefined);
  const question = `Destroy ${countOf(asked?.length ?? 0)}`;
  return (
    <>
      {machines.length === 0 ? null : (
        <div role="toolbar" aria-label="Selected machines" className={styles.bulk}>
          <span>{countOf(machines.length)} selected</span>
          <Button
            busy={bulk.isPending}
            reason={stoppable.length === 0 ? 'None of the selected machines can be stopped now.' : undefined}
            onClick={() => bulk.run({ action: 'stop', machines: stoppable })}
          >
            Stop {stoppable.length}
          </Button>
          <Button kind="danger" busy={bulk.isPending} onClick={() => setAsked(machines)}>
            Destroy {machines.length}
          </Button>
        </div>
      )}
      <ConfirmDialog
        isOpen={asked !== undefined}
        onCancel={() => setAsked(undefined)}
        title={`${question}?`}
        action={question}
        busy={bulk.isPending}
        error={bulk.error}
        onConfirm={() => bulk.run({ action: 'destroy', machines: asked ?? [] })}
      >
        Their root disks and the output of their jobs are deleted. This cannot be undone.
      </ConfirmDialog>
      {failures.map((failure) => (
        <Failure
          key={failure.machine.id}
          subject={failure.machine.name || failure.machine.id}
          error={failure.error}
          onDismiss={() => setFailures(failures.filter((other) => other !== failure))}
        />
      ))}
    </>
  );
}

const countOf = (count: number): string => `${count} ${count === 1 ? 'machine' : 'machines'}`;
const isSame = (a: BulkFailure, b: BulkFailure): boolean => a.machine.id === b.machine.id;
