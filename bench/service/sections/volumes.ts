// Times attaching a data volume to a running machine, until it is mounted, and detaching it again.
import type { ModeService } from '../bench-service.ts';
import { type Context, keepConnected, repeat, timed } from '../context.ts';
import { noTimes } from '../references.ts';

const SIZE_GB = 5;

export async function benchVolumes({ sandbar }: ModeService, context: Context): Promise<void> {
  const { sizes, references: yardsticks, report } = context;
  const references = noTimes();
  const times = { first: [] as number[], attach: [] as number[], detach: [] as number[] };
  const { id: machineId } = await sandbar.machines.create();
  await repeat(context, sizes.samples, async () => {
    await yardsticks.sample(references);
    await keepConnected(sandbar);
    const volume = await sandbar.volumes.create({ size_gb: SIZE_GB });
    const attach = () => sandbar.volumes.attach(volume.id, { machine_id: machineId });
    const detach = () => sandbar.volumes.detach(volume.id);
    times.first.push((await timed(attach)).ms);
    times.detach.push((await timed(detach)).ms);
    times.attach.push((await timed(attach)).ms);
    times.detach.push((await timed(detach)).ms);
    await sandbar.volumes.delete(volume.id);
  });
  await sandbar.machines.destroy(machineId);
  const [unit, bounds] = ['ms' as const, [{ of: 'median' as const, atMost: 150 }]];
  report({ what: 'attach a new volume of 5 GB to a running machine', unit, values: times.first, bounds, references });
  report({ what: 'attach it again', unit, values: times.attach, bounds, references });
  report({ what: 'detach it', unit, values: times.detach, bounds, references });
}
