// Tests how the reconciler remembers differences between a host and the database, such as an unknown machine. It acts
// on a difference only when it has lasted for a grace period. A difference that disappears and returns starts a new
// period.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { v7 as uuidv7 } from 'uuid';
import { createSightings } from '../src/reconcilers/sightings.ts';
import { isOfThisDatabase, timeOfId } from '../src/reconcilers/unknown.ts';

it('what is seen in two passes, its grace apart, is overdue', () => {
  let now = 0;
  const sightings = createSightings(() => now);
  const look = () => {
    const isOverdue = sightings.isOverdue('it', 100);
    sightings.endPass();
    return isOverdue;
  };
  assert.equal(look(), false);
  now = 99;
  assert.equal(look(), false);
  now = 100;
  assert.equal(look(), true);
  sightings.endPass();
  now = 1000;
  assert.equal(look(), false, 'it was gone in between');
});

it('without a grace it takes two passes all the same', () => {
  const sightings = createSightings(() => 0);
  assert.deepEqual([sightings.isOverdue('it', 0), sightings.isOverdue('it', 0)], [false, false]);
  sightings.endPass();
  assert.equal(sightings.isOverdue('it', 0), true);
});

it('an id tells when it was made, and so whether this database can have made it', () => {
  const at = Date.parse('2026-01-02T03:04:05.006Z');
  assert.equal(timeOfId(uuidv7({ msecs: at })), at);
  const made = (msecs: number) => isOfThisDatabase(uuidv7({ msecs }), new Date(at));
  assert.deepEqual([made(at + 1), made(at - 59_000), made(at - 61_000)], [true, true, false]);
  assert.equal(isOfThisDatabase('0191e7a0-5a7b-4c3d-9e2f-000000000000', new Date(0)), false);
});
