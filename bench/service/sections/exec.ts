// Times jobs in a machine that has already run some jobs.
import type { ModeService } from '../bench-service.ts';
import { type Context, keepConnected, repeat, timed } from '../context.ts';
import { noTimes } from '../references.ts';
import { runEcho } from './create.ts';

const WARM_UPS = 3;

export async function benchExec({ sandbar }: ModeService, context: Context): Promise<void> {
  const references = noTimes();
  const values: number[] = [];
  const { id } = await sandbar.machines.create();
  await repeat(context, WARM_UPS, () => runEcho(sandbar, id));
  await repeat(context, context.sizes.samples, async () => {
    await context.references.sample(references);
    await keepConnected(sandbar);
    values.push((await timed(() => runEcho(sandbar, id))).ms);
  });
  await sandbar.machines.destroy(id);
  context.report({ what: 'exec in a machine at rest, POST to ended', unit: 'ms', values, references });
}
