// The start operation: the machine's row is in state `provisioning`, and the host boots the machine from its disk. When
// the start fails, the machine is stopped again.
import { settleJobsOf } from '../../execs/settle.ts';
import { ensureOnHost } from '../../machines/ensure.ts';
import { act, type Definition, machineOf } from '../definition.ts';
import { bumpForUndo } from '../undo.ts';

export const START: Definition = {
  act: act(
    (app, work) => ensureOnHost(app, machineOf(work), 'running'),
    async ({ steps, ...recording }, { isolation, private_ip }) => {
      const to = { state: 'running', error: null, isolation, private_ip } as const;
      await steps.changeMachine(machineOf(recording), to);
    },
  ),
  undo: act(
    async (app, work) => {
      const machine = await bumpForUndo(app, work);
      await ensureOnHost(app, machine, 'stopped');
      await settleJobsOf(app, machine);
    },
    async ({ steps, ...recording }) => {
      await steps.changeMachine(machineOf(recording), { state: 'stopped' });
    },
  ),
};
