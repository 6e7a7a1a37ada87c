// Data that a guest has synced, to its root disk or to a volume, survives a kill of QEMU, the host agent or the control
// plane. `npm run bench -- durability` runs a hundred rounds of the same test.
import assert from 'node:assert/strict';
import { before, describe, it } from 'node:test';
import { Client } from '@sandbar/sdk/client.ts';
import { DurabilityRounds, type Victim } from './support/durability.ts';
import { API_KEY, BASE_URL, pidOf, qemuPidOf } from './support/service.ts';

const ROUNDS: readonly Victim[] = ['qemu', 'host-agent', 'control-plane', 'qemu', 'host-agent'];

describe('synced data', () => {
  let rounds: DurabilityRounds;
  before(async () => {
    rounds = await DurabilityRounds.begin({
      sandbar: new Client({ baseUrl: BASE_URL, apiKey: API_KEY }),
      pidOf: (victim, machineId) => (victim === 'qemu' ? qemuPidOf(machineId) : pidOf(victim)),
    });
  });

  for (const [index, victim] of ROUNDS.entries()) {
    it(`survives a kill -9 of ${victim} (round ${index + 1})`, async () => {
      assert.equal(await rounds.round(victim), undefined);
    });
  }

  it('of all rounds is still complete at the end', async () => {
    assert.equal(await rounds.end(), undefined);
  });
});
