// The fake host of bench/attacks.ts and bench/waits.ts, in a process of its own. The message `{ chatty, everyMs }`
// makes each of these jobs print a line every `everyMs` milliseconds, one job after the other. A message without
// `chatty` stops these lines. `{ end }` ends these jobs. `{ report: true }` is answered with the number of reads of job
// output so far.
import { FakeHost } from '../../packages/control-plane/tests/support/fake-host.ts';

export type HostJob = { machine: string; job: string };
export type HostMessage = { chatty?: HostJob[]; everyMs?: number; end?: HostJob[]; report?: true };

const host = new FakeHost(process.env.BENCH_HOST_SOCKET ?? '', {
  memory_mb: 2 ** 30,
  isolation: 'kvm',
  subnet: '10.83.0.0/16',
});
await host.listen();
const LINE = Buffer.from(`${'x'.repeat(199)}\n`);
let printing: NodeJS.Timeout | undefined;
process.on('message', ({ chatty, everyMs = 1000, end, report }: HostMessage) => {
  if (report) return process.send?.(host.callsOf('output'));
  clearInterval(printing);
  for (const { machine, job } of end ?? []) host.endJob(machine, job);
  if (!chatty?.length) return;
  let turn = 0;
  printing = setInterval(() => {
    const next = chatty[turn++ % chatty.length];
    if (next) host.append(next.machine, next.job, LINE);
  }, everyMs / chatty.length);
});
process.on('disconnect', () => process.exit(0));
process.send?.('ready');
