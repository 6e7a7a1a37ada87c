// Steps the wall clock of the control planes, of the host agent or of PostgreSQL, and steps it back at the end. The
// load may see 503. No lease, claim or expiry may be taken for over too early or last for ever, and charges stay exact.
import type { Fault } from '../fault.ts';

const FORWARD_SHARE = 0.5;
/** How far a clock steps, in seconds. */
const PROCESS_STEPS_SEC = [3, 90, 3_000];
/** The clock of an account never goes back. So after a large step of the database nothing is charged for as long. */
const DATABASE_STEPS_SEC = [3, 30, 120];

export const stepClock: Fault = async ({ bed, random }) => {
  const clock = random.pick(bed.clocks);
  if (clock === undefined) throw new Error('there is no clock');
  const sizeSec = random.pick(clock.of === 'PostgreSQL' ? DATABASE_STEPS_SEC : PROCESS_STEPS_SEC) ?? 3;
  const sec = random.chance(FORWARD_SHARE) ? sizeSec : -sizeSec;
  clock.step(sec);
  return { about: `${clock.of} by ${sec} s`, end: async () => clock.step(0) };
};
