// Times the requests of a single client: creating a machine, running its first job, and reading its first output.
import type { Machine } from '@sandbar/contract/machine.ts';
import type { Client } from '@sandbar/sdk/client.ts';
import type { Mode, ModeService } from '../bench-service.ts';
import { type Context, keepConnected, repeat, timed } from '../context.ts';
import type { Bound } from '../figures.ts';
import { waitForFullPool } from '../host-info.ts';
import { noTimes } from '../references.ts';

const NAMES: Record<Mode, string> = {
  pool: 'pool warm',
  template: 'no pool, template there',
  cold: 'cold',
};

type Bounds = { output: readonly Bound[]; create: readonly Bound[]; exec: readonly Bound[] };

const BOUNDS: Record<Mode, Bounds> = {
  pool: {
    output: [
      { of: 'median', atMost: 0.25, in: 'gVisor starts' },
      { of: 'p95', atMost: 0.6, in: 'gVisor starts' },
    ],
    create: [{ of: 'median', atMost: 10 }],
    exec: [{ of: 'median', atMost: 20 }],
  },
  template: { output: [], create: [{ of: 'median', atMost: 120 }], exec: [] },
  cold: { output: [], create: [{ of: 'median', atMost: 1600 }], exec: [] },
};

export async function benchCreate({ mode, sandbar, paths }: ModeService, context: Context): Promise<void> {
  const { sizes, references: yardsticks, report } = context;
  const references = noTimes();
  const times = { create: [] as number[], output: [] as number[], exec: [] as number[] };

  /** Begins each round in the same state: the references have run, the pool is full, and a connection is open. */
  const prepare = async () => {
    await yardsticks.sample(references);
    if (mode === 'pool') await waitForFullPool(paths.hostAgentSocket);
    await keepConnected(sandbar);
  };

  await repeat(context, sizes.samples, async () => {
    await prepare();
    const output = await timed(() => firstOutput(sandbar, times.create));
    times.output.push(output.ms);
    await sandbar.machines.destroy(output.result.id);
  });
  await repeat(context, sizes.samples, async () => {
    await prepare();
    const { ms, result: machine } = await timed(() => sandbar.machines.create());
    times.create.push(ms);
    times.exec.push((await timed(() => runEcho(sandbar, machine.id))).ms);
    await sandbar.machines.destroy(machine.id);
  });

  const name = NAMES[mode];
  const [unit, bounds] = ['ms' as const, BOUNDS[mode]];
  report({ what: `time to first output, ${name}`, unit, values: times.output, bounds: bounds.output, references });
  report({ what: `POST /v1/machines, ${name}`, unit, values: times.create, bounds: bounds.create, references });
  report({ what: `first exec after create, ${name}`, unit, values: times.exec, bounds: bounds.exec, references });
}

/**
 * Creates a machine, runs `echo` and gets its output, which corresponds to the gVisor reference. Adds the create time to
 * `creates`.
 */
async function firstOutput(sandbar: Client, creates: number[]): Promise<Machine> {
  const { ms, result: machine } = await timed(() => sandbar.machines.create());
  creates.push(ms);
  await runEcho(sandbar, machine.id);
  return machine;
}

/** Runs `echo hi` with one request, which waits for the end. Throws unless it prints `hi` and exits with 0. */
export async function runEcho(sandbar: Client, machineId: string): Promise<void> {
  const { status, exit_code, output } = await sandbar.execs.start(
    machineId,
    { command: 'echo hi' },
    { waitMs: 30_000 },
  );
  const said = Buffer.from(output?.stdout.data ?? '', 'base64').toString();
  if (status !== 'exited' || exit_code !== 0 || said !== 'hi\n')
    throw new Error(`echo ended as ${status} with ${exit_code} and said ${JSON.stringify(said)}`);
}
