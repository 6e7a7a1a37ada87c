// Times cold boots, one after the other, and counts failures. Under emulation a boot can hang. The host agent then ends
// it and boots again, which a client sees as a slow create.
import { readFileSync } from 'node:fs';
import type { ModeService } from '../bench-service.ts';
import { type Context, keepConnected, repeat, timed } from '../context.ts';
import { noTimes } from '../references.ts';

/** After this time without an answer of the guest agent, the host agent ends a boot and tries another one. */
const HUNG_MS = 8000;

export async function benchBoots({ sandbar, paths }: ModeService, context: Context): Promise<void> {
  const { sizes, references: yardsticks, report, note } = context;
  const references = noTimes();
  const values: number[] = [];
  const failures: string[] = [];
  const log = `${paths.logs}/host-agent.log`;
  const failedBefore = failedBoots(log);
  await repeat(context, sizes.boots, async () => {
    await yardsticks.sample(references);
    await keepConnected(sandbar);
    const { ms, result } = await timed(() =>
      sandbar.machines.create().catch((error: unknown) => {
        failures.push(String(error));
      }),
    );
    if (!result) return;
    values.push(ms);
    await sandbar.machines.destroy(result.id);
  });
  const slow = values.filter((ms) => ms > HUNG_MS).length;
  const hung = Math.max(slow, failedBoots(log) - failedBefore - failures.length, 0);
  const none = [{ of: 'max' as const, atMost: 0 }];
  const what = `cold boot to 201, ${sizes.boots} in a row`;
  report({ what, unit: 'ms', values, bounds: [{ of: 'median', atMost: 2000 }], references });
  report({ what: `of these ${sizes.boots}: failed`, unit: '', values: [failures.length], bounds: none });
  report({ what: `of these ${sizes.boots}: hung and tried again`, unit: '', values: [hung], bounds: none });
  for (const failure of new Set(failures)) note(`A cold boot failed: ${failure}`);
}

/** Counts the failed boots in the log of the host agent. */
function failedBoots(log: string): number {
  return readFileSync(log, 'utf8').split('a boot failed').length - 1;
}
