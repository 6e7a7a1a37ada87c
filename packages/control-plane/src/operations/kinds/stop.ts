// Stop: graceful on the host (10 s, then hard). The disk stays, the memory is given back, and running jobs are lost. A stop
// that fails is tried again until it is done.
import { settleJobsOf } from '../../execs/settle.ts';
import { ensureOnHost } from '../../machines/ensure.ts';
import { act, type Definition, machineOf } from '../definition.ts';

export const STOP: Definition = {
  act: act(
    async (app, work) => {
      const machine = machineOf(work);
      await ensureOnHost(app, machine, 'stopped');
      await settleJobsOf(app, machine);
    },
    async ({ steps, ...recording }) => {
      await steps.changeMachine(machineOf(recording), { state: 'stopped' });
    },
  ),
};
