// The short version of bench/kills.ts: processes of a service are killed under load. Then every byte, every entry of
// the activity feed and every quota must be as the clients know it. bench/README.md lists the checks.
import assert from 'node:assert/strict';
import path from 'node:path';
import { after, before, describe, it } from 'node:test';
import type { Credentials } from '@sandbar/service/credentials.ts';
import { Journal } from '../../bench/kills/journal.ts';
import { runUnderKills } from '../../bench/kills/run.ts';
import { describeRun } from '../../bench/kills/summary.ts';
import { folder, homeOf, start } from './support/service-process.ts';
import { read } from './support/until.ts';

const KILLS = 6;
const SEED = 1;
const MACHINES_OF_CLIENTS = [2, 1, 1];

describe('a service whose processes are killed at random', () => {
  const home = homeOf('kills');
  const stopping = new AbortController();

  before(async () => {
    // Rate limits that refuse nothing, since the clients retry a lot while the service restarts.
    await start('kills', {
      SANDBAR_RATE_MUTATING: '1000/1000',
      SANDBAR_RATE_EXEC: '1000/1000',
      SANDBAR_POOL_SIZE: '0',
      SANDBAR_ALLOW_EMULATED_TENANTS: '1',
    }).ready;
  });
  after(() => stopping.abort());

  it('loses nothing, does nothing twice and leaves nothing behind', async () => {
    const { base_url: baseUrl, api_key: apiKey } = JSON.parse(read(`${home}/credentials.json`)) as Credentials;
    const log = path.join(folder, 'kills.log');
    const journal = new Journal(log);
    const run = { home, seed: SEED, kills: KILLS, machinesOfClients: MACHINES_OF_CLIENTS, journal };
    const kills = await runUnderKills({ ...run, service: { baseUrl, apiKey }, signal: stopping.signal });
    assert.equal(kills.length, KILLS);
    assert.deepEqual(journal.differences, [], `${describeRun(kills, journal).join('\n')}\n${read(log)}`);
  });
});
