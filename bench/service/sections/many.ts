// Creates as many small machines as a host with 24 GB should hold, runs a job in each, destroys them all, and checks
// that nothing of them is left.
import { audit } from '../audit.ts';
import type { ModeService } from '../bench-service.ts';
import { type Context, timed } from '../context.ts';
import { runEcho } from './create.ts';

const MEMORY_MB = 128;
/** Requests in flight at a time. A real client would not send hundreds of creates at once either. */
const CONCURRENCY = 8;

export async function benchMany(service: ModeService, context: Context, checkout: string): Promise<void> {
  const { sandbar } = service;
  const { sizes, report, note } = context;
  const failures: string[] = [];
  const tryEach = async <T>(items: readonly T[], work: (item: T) => Promise<unknown>): Promise<number[]> => {
    const times: number[] = [];
    const waiting = items.values();
    const worker = async () => {
      for (const item of waiting) {
        context.signal.throwIfAborted();
        await timed(() => work(item)).then(
          ({ ms }) => times.push(ms),
          (error: unknown) => failures.push(String(error)),
        );
      }
    };
    await Promise.all(Array.from({ length: CONCURRENCY }, worker));
    return times;
  };

  const ids: string[] = [];
  const create = await timed(() =>
    tryEach(Array.from({ length: sizes.machines }), async () => {
      ids.push((await sandbar.machines.create({ memory_mb: MEMORY_MB })).id);
    }),
  );
  const exec = await timed(() => tryEach(ids, (id) => runEcho(sandbar, id)));
  const running = (await sandbar.machines.list({ state: 'running' })).length;
  const destroy = await timed(() => tryEach(ids, (id) => sandbar.machines.destroy(id)));
  const { by, findings } = audit(checkout, service);

  const name = `${sizes.machines} machines of ${MEMORY_MB} MB, ${CONCURRENCY} at a time`;
  report({ what: `${name}: create`, unit: 'ms', values: create.result });
  report({ what: `${name}: one exec each`, unit: 'ms', values: exec.result });
  report({ what: `${name}: delete`, unit: 'ms', values: destroy.result });
  const none = [{ of: 'max' as const, atMost: 0 }];
  report({ what: `${name}: not running at once`, unit: '', values: [sizes.machines - running], bounds: none });
  report({ what: `${name}: calls that failed`, unit: '', values: [failures.length], bounds: none });
  report({ what: `${name}: findings of the audit`, unit: '', values: [findings.length], bounds: none });
  const seconds = [create, exec, destroy].map(({ ms }) => (ms / 1000).toFixed(1)).join(', ');
  note(`${name}: created, asked and deleted in ${seconds} s; the audit was ${by}.`);
  for (const problem of [...new Set(failures), ...findings].slice(0, 20)) note(`${name}: ${problem}`);
}
