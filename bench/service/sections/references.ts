// Times the two references alone: a gVisor start and a bare QEMU restore, alternately.
import { type Context, repeat } from '../context.ts';
import { timeGvisor } from '../gvisor.ts';
import type { QemuRestore } from '../qemu-restore.ts';

export async function benchReferences(restore: QemuRestore | undefined, context: Context): Promise<void> {
  const { references, report, sizes } = context;
  const gvisor: number[] = [];
  const running: number[] = [];
  const answered: number[] = [];
  await repeat(context, sizes.samples, async () => {
    if (references.hasGvisor) gvisor.push(await timeGvisor());
    if (restore === undefined) return;
    const times = await restore.time();
    running.push(times.running);
    answered.push(times.answered);
  });
  const times = { gvisor, restore: running };
  if (gvisor.length > 0) report({ what: 'gVisor: runsc do /bin/echo hi', unit: 'ms', values: gvisor });
  if (restore === undefined) return;
  const ratios = { gvisor: times.gvisor, restore: [] };
  report({ what: 'bare QEMU restore, until the guest runs', unit: 'ms', values: running, references: ratios });
  report({ what: 'the same, until its agent answers', unit: 'ms', values: answered, references: times });
}
