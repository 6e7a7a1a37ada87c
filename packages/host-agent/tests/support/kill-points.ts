// The points at which a test kills an agent: before and after each step of its work that the hypervisor sees.
import type { FaultPoint } from './fake-hypervisor.ts';

/** `nth`: which passing of the step, counted from 1. */
export type KillPoint = { point: FaultPoint; nth: number; when: 'before' | 'after' };

/** `passed`: the steps of an undisturbed agent, in their order. */
export function killPointsOf(passed: readonly FaultPoint[]): KillPoint[] {
  const seen = new Map<FaultPoint, number>();
  return passed.flatMap((point) => {
    const nth = (seen.get(point) ?? 0) + 1;
    seen.set(point, nth);
    return [
      { point, nth, when: 'before' as const },
      { point, nth, when: 'after' as const },
    ];
  });
}
