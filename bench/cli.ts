// Measures the time that the CLI adds to the API, against a service that is already running. Prints one line per
// figure. Each start is compared with `node -e 0` in the same moment, because the start of Node takes most of the time.
//   node_modules/node/bin/node bench/cli.ts        (after `npm start` in another terminal; SANDBAR_HOME as there)
// Optional: BENCH_ROUNDS, the runs of each command (default 20).
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { resolveSettings, type Settings } from '@sandbar/sdk/settings.ts';
import { measure, percentile, summarize } from './statistics.ts';

const CLI = new URL('../packages/cli/bin/sandbar.mjs', import.meta.url).pathname;
const ROUNDS = Number(process.env.BENCH_ROUNDS ?? 20);
const AT_ONCE = 10;
/** Small machines, so that ten of them fit on any host. */
const MACHINE = { memory_mb: 256 };
const RUN = [CLI, 'run', '--memory', String(MACHINE.memory_mb), '--', 'true'];

const settings = resolveSettings({});

async function main(): Promise<void> {
  // The first call fills Node's cache of compiled sources.
  for (const args of [['--version'], ['ls']]) await run([CLI, ...args]);
  await compareStart('--version', [CLI, '--version']);
  await compareStart('ls', [CLI, 'ls']);
  const list = await measure(ROUNDS, () => call(settings, 'GET', '/v1/machines'));
  console.log(`the request of ls alone, ms: ${summarize(list)}`);

  await run(RUN);
  const ofApi: number[] = [];
  const ofCli: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    ofApi.push(...(await measure(1, () => runByFetch(settings))));
    ofCli.push(...(await measure(1, () => run(RUN))));
  }
  console.log(`create, exec and delete with fetch, ms: ${summarize(ofApi)}`);
  console.log(`sandbar run -- true, ms: ${summarize(ofCli)}`);
  console.log(`sandbar run adds, ms: ${(percentile(ofCli, 0.5) - percentile(ofApi, 0.5)).toFixed(1)}`);

  const together = (work: () => Promise<unknown>) => Promise.all(Array.from({ length: AT_ONCE }, work));
  console.log(
    `${AT_ONCE} times at once with fetch, ms: ${summarize(await measure(3, () => together(() => runByFetch(settings))))}`,
  );
  console.log(
    `${AT_ONCE} times sandbar run at once, ms: ${summarize(await measure(3, () => together(() => run(RUN))))}`,
  );
}

/** Prints the time of a command, and its ratio to `node -e 0`. The two take turns, so that a load hits both. */
async function compareStart(name: string, args: string[]): Promise<void> {
  const bare: number[] = [];
  const own: number[] = [];
  for (let round = 0; round < ROUNDS; round++) {
    bare.push(...(await measure(1, () => run(['-e', '0']))));
    own.push(...(await measure(1, () => run(args))));
  }
  console.log(`node -e 0, ms: ${summarize(bare)}`);
  console.log(
    `sandbar ${name}, ms: ${summarize(own)}; ${(percentile(own, 0.5) / percentile(bare, 0.5)).toFixed(2)} x node -e 0`,
  );
}

/** Runs Node with the arguments. Throws unless it succeeds. */
async function run(args: string[]): Promise<void> {
  const child = spawn(process.execPath, args, { stdio: 'ignore' });
  const [code] = await once(child, 'close');
  if (code !== 0) throw new Error(`${args.join(' ')} ended with ${code}`);
}

/** What `sandbar run -- true` asks the service for, without the CLI. */
async function runByFetch(settings: Settings): Promise<void> {
  const { id } = await call(settings, 'POST', '/v1/machines', { ...MACHINE, expires_in_sec: 120 });
  const job = await call(settings, 'POST', `/v1/machines/${id}/execs?wait_ms=10000`, { argv: ['true'] });
  if (job.exit_code !== 0) throw new Error(`true ended with ${job.exit_code}`);
  await call(settings, 'DELETE', `/v1/machines/${id}`);
}

async function call(
  { baseUrl, apiKey }: Settings,
  method: string,
  path: string,
  body?: object,
): Promise<Record<string, unknown>> {
  const response = await fetch(baseUrl + path, {
    method,
    headers: { authorization: `Bearer ${apiKey}`, ...(body ? { 'content-type': 'application/json' } : {}) },
    ...(body ? { body: JSON.stringify(body) } : {}),
  });
  if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${await response.text()}`);
  return (await response.json()) as Record<string, unknown>;
}

await main();
