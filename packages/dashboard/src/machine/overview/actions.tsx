// Start, stop and destroy. A button that the state forbids says why.
import { useState } from 'react';
import { api, type Schemas, unwrap } from '../../api/client.ts';
import { reasonAgainst } from '../../machines/actions.ts';
import form from '../../machines/form.module.css';
import { Problem } from '../../machines/problem.tsx';
import { useAction } from '../../machines/use-action.ts';
import { Button } from '../../ui/button.tsx';
import { DestroyDialog } from './destroy-dialog.tsx';

export function Actions({ machine }: { machine: Schemas['Machine'] }) {
  const params = { path: { id: machine.id } };
  const start = useAction(() => unwrap(api.POST('/v1/machines/{id}/start', { params })));
  const stop = useAction(() => unwrap(api.POST('/v1/machines/{id}/stop', { params })));
  const [isAsking, setAsking] = useState(false);
  const begin = (action: typeof start, other: typeof stop) => {
    other.reset();
    action.run(undefined);
  };
  return (
    <div className={form.form}>
      <div role="toolbar" aria-label="Actions" className={form.buttons}>
        <Button busy={start.isPending} reason={reasonAgainst(machine, 'start')} onClick={() => begin(start, stop)}>
          {start.isPending ? 'Starting…' : 'Start'}
        </Button>
        <Button busy={stop.isPending} reason={reasonAgainst(machine, 'stop')} onClick={() => begin(stop, start)}>
          {stop.isPending ? 'Stopping…' : 'Stop'}
        </Button>
        <Button kind="danger" reason={reasonAgainst(machine, 'destroy')} onClick={() => setAsking(true)}>
          Destroy
        </Button>
      </div>
      <Problem error={start.error ?? stop.error} />
      <DestroyDialog machine={machine} open={isAsking} onOpenChange={setAsking} />
    </div>
  );
}
