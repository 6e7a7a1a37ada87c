// Kills QEMU, the host agent or the control plane at random moments while a guest writes and syncs. No block that the
// guest has reported as synced may be lost.
import { DurabilityRounds, VICTIMS } from '../../../tests/e2e/support/durability.ts';
import type { ModeService } from '../bench-service.ts';
import { type Context, repeat } from '../context.ts';
import { qemuPids, readPid } from '../processes.ts';

export async function benchDurability({ sandbar, paths }: ModeService, context: Context): Promise<void> {
  const { sizes, report, note } = context;
  const rounds = await DurabilityRounds.begin({
    sandbar,
    pidOf: (victim, machineId) => {
      const pid = victim === 'qemu' ? qemuPids(paths.runMachines).get(machineId) : readPid(paths.pidFile(victim));
      if (pid === undefined) throw new Error(`there is no ${victim} to kill`);
      return pid;
    },
  });
  let losses = 0;
  await repeat(context, sizes.rounds, async (index) => {
    const victim = VICTIMS[index % VICTIMS.length] ?? 'qemu';
    const loss = await rounds.round(victim);
    if (loss === undefined) return;
    losses++;
    note(`durability, round ${index + 1}, ${victim} killed: ${loss}`);
  });
  const lost = await rounds.end();
  if (lost !== undefined) note(`durability, all rounds: ${lost}`);
  const what = `kill -9 of QEMU, agent or control plane under synced writes, ${sizes.rounds} rounds: rounds that lost a block`;
  report({ what, unit: '', values: [losses + (lost === undefined ? 0 : 1)], bounds: [{ of: 'max', atMost: 0 }] });
}
