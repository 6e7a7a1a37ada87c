// Warms up a new guest: it goes through the identity step and a job, and undoes both at once. A guest may hang in a
// warm-up, so there is a way to give up.
import type { Guest, WarmUpProgram } from '../guest/guest.ts';
import type { Shape } from '../templates/shape.ts';
import { closeOnAbort } from './close-on-abort.ts';

/**
 * Returns the program that a guest of this shape may run before it has an identity. A disk with layers is from a
 * snapshot or a volume of a user, who may have replaced any program on it, so only the agent's own program runs there.
 * Without layers the disk is the unchanged image. A bare guest has no disk yet.
 */
export function warmUpProgram({ layerPaths, isBare }: Shape): WarmUpProgram {
  return layerPaths.length === 0 && !isBare ? 'shell' : 'agent';
}

/**
 * Runs `times` warm-up jobs in a clone that gets a lease. The lease applies most of the identity in advance, so the
 * identity step needs no warm-up. Rejects when a job fails. When `giveUp` aborts, closes the session and rejects.
 */
export async function warmUpJobs(
  guest: Guest,
  program: WarmUpProgram,
  times: number,
  giveUp: AbortSignal,
): Promise<void> {
  for (let done = 0; done < times; done++) await closeOnAbort(guest, giveUp, () => guest.warmUpJob(program));
}

/** Runs `times` warm-up rounds. Rejects when a round fails. When `giveUp` aborts, closes the session and rejects. */
export async function warmUp(guest: Guest, program: WarmUpProgram, times: number, giveUp: AbortSignal): Promise<void> {
  for (let done = 0; done < times; done++) await closeOnAbort(guest, giveUp, () => guest.warmUp(program));
}
