// The fake host of bench/attacks.ts, in a process of its own. The message `{ chatty: { machine, job }, ms }` makes a
// job print a line every `ms` milliseconds. A message without `chatty` stops these lines. The message `{ report: true }`
// is answered with the number of reads of job output so far.
import { FakeHost } from '../../packages/control-plane/tests/support/fake-host.ts';

const host = new FakeHost(process.env.BENCH_HOST_SOCKET ?? '', { memory_mb: 2 ** 30, isolation: 'kvm' });
await host.listen();
const LINE = Buffer.from(`${'x'.repeat(199)}\n`);
let printing: NodeJS.Timeout | undefined;
type Message = { chatty?: { machine: string; job: string }; ms?: number; report?: true };
process.on('message', ({ chatty, ms, report }: Message) => {
  if (report) return process.send?.(host.callsOf('output'));
  clearInterval(printing);
  if (chatty) printing = setInterval(() => host.append(chatty.machine, chatty.job, LINE), ms);
});
process.on('disconnect', () => process.exit(0));
process.send?.('ready');
