// What a guest has synced is there after anything was killed, in the root disk and in a volume. `npm run bench -- durability`
// does a hundred rounds of the same.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { Sandbar } from '@sandbar/sdk/client.ts';
import { DurabilityRounds, type Victim } from './support/durability.ts';
import { API_KEY, BASE_URL, pidOf, qemuPidOf } from './support/service.ts';

const ROUNDS: readonly Victim[] = ['qemu', 'host-agent', 'control-plane', 'qemu', 'host-agent'];

describe('what was synced', () => {
  let rounds: DurabilityRounds;
  before(async () => {
    rounds = await DurabilityRounds.begin({
      sandbar: new Sandbar({ baseUrl: BASE_URL, apiKey: API_KEY }),
      pidOf: (victim, machineId) => (victim === 'qemu' ? qemuPidOf(machineId) : pidOf(victim)),
    });
  });

  for (const [index, victim] of ROUNDS.entries()) {
    it(`is there after a kill -9 of ${victim} (round ${index + 1})`, async () => {
      assert.equal(await rounds.round(victim), undefined);
    });
  }

  it('is there after all of them', async () => {
    assert.equal(await rounds.end(), undefined);
  });
});
