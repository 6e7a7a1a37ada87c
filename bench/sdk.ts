// Measures what the TypeScript SDK adds to a call: the same requests by `fetch` and by the SDK, in turns, against the
// running service of this computer.
//
//   sudo node_modules/node/bin/node bench/sdk.ts
// Optional variable: ROUNDS (default 2000). The exit code is 1 when the SDK adds more than 2 ms at the median.
import { performance } from 'node:perf_hooks';
import { Client } from '@sandbar/sdk/client.ts';
import { resolveSettings } from '@sandbar/sdk/settings.ts';
import { percentile } from './statistics.ts';

const ROUNDS = Number(process.env.ROUNDS || 2000);
/** The bound of issue 17, ms. */
const ADDED_MS_MAX = 2;

const settings = resolveSettings({});
const client = new Client(settings);
const headers = { authorization: `Bearer ${settings.apiKey}`, accept: 'application/json' };

const byFetch = async () => {
  const response = await fetch(`${settings.baseUrl}/v1/account`, { headers });
  return JSON.parse(await response.text());
};
const bySdk = () => client.account.get();

const times: Record<'fetch' | 'sdk', number[]> = { fetch: [], sdk: [] };
for (let round = 0; round < ROUNDS; round++) {
  const turns = [['fetch', byFetch] as const, ['sdk', bySdk] as const];
  // Each goes first in every second round.
  for (const [name, call] of round % 2 === 0 ? turns : turns.reverse()) {
    const startedAt = performance.now();
    await call();
    times[name].push(performance.now() - startedAt);
  }
}

for (const [name, values] of Object.entries(times)) {
  const [median, high] = [percentile(values, 0.5), percentile(values, 0.95)];
  console.log(`${name.padEnd(5)}  median ${median.toFixed(3)} ms  95 % ${high.toFixed(3)} ms`);
}
const added = percentile(times.sdk, 0.5) - percentile(times.fetch, 0.5);
console.log(`the SDK adds ${added.toFixed(3)} ms at the median of ${ROUNDS} rounds (at most ${ADDED_MS_MAX})`);
if (added > ADDED_MS_MAX) process.exitCode = 1;
