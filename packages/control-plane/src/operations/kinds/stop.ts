// The stop operation: the host asks the guest to shut down and kills the VM after 10 s. The machine keeps its disk, its
// memory is freed, and its running jobs are recorded as lost. A stop that fails is repeated until it succeeds.
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
