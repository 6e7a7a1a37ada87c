// The rules that are compared. Each chooses a host for a new machine from what one replica knows.
import { canTake, chooseHost, type PlacementRequest, usedShare } from '@sandbar/control-plane/hosts/placement.ts';
import { capacityOf, type Overcommit, type Room, unpromised } from '@sandbar/control-plane/hosts/room.ts';
import type { SimulatedHost } from './fleet.ts';

export type Rule = (
  hosts: readonly SimulatedHost[],
  request: PlacementRequest,
  overcommit: Overcommit,
  random: () => number,
) => SimulatedHost | undefined;

type Score = (host: SimulatedHost, room: Room, overcommit: Overcommit) => number;

/** How full the fullest resource is. */
const share: Score = usedShare;
/** How much fuller the fullest resource is than the emptiest. */
const imbalance: Score = (host, room, overcommit) => {
  const shares = sharesOf(host, room, overcommit);
  return Math.max(...shares) - Math.min(...shares);
};
const sharesOf = (host: SimulatedHost, room: Room, overcommit: Overcommit): number[] => {
  const most = capacityOf(host, overcommit);
  return [
    (host.reserved_memory_mb + room.memoryMb) / (most.memoryMb * overcommit.memory),
    (host.reserved_vcpus + room.vcpus) / (most.vcpus * overcommit.vcpus),
    (host.reserved_disk_gb + room.diskGb) / most.diskGb,
  ];
};

/** The host with the least score among all hosts, or among `compared` random ones that can take the machine. */
const least =
  (score: Score, compared = Number.POSITIVE_INFINITY): Rule =>
  (hosts, request, overcommit, random) => {
    let [best, lowest, seen] = [undefined as SimulatedHost | undefined, Number.POSITIVE_INFINITY, 0];
    const start = compared === Number.POSITIVE_INFINITY ? hosts : shuffled(hosts, random);
    for (const host of start) {
      if (!canTake(host, request, overcommit)) continue;
      const value = score(host, request.room, overcommit);
      if (value < lowest) [best, lowest] = [host, value];
      if (++seen === compared) break;
    }
    return best;
  };

function* shuffled<T>(items: readonly T[], random: () => number): Generator<T> {
  const rest = [...items];
  while (rest.length > 0) {
    const index = Math.floor(random() * rest.length);
    const [chosen, last] = [rest[index] as T, rest.pop() as T];
    if (index < rest.length) rest[index] = last;
    yield chosen;
  }
}

/** The rules by name. "Before": the rule of versions for one host. */
export const RULES: Record<string, Rule> = {
  'least full of 4 (Sandbar)': chooseHost,
  'random host': least(() => 0, 1),
  'least full of 2': least(share, 2),
  'least full of 8': least(share, 8),
  'least full of all': least(share),
  'most free memory of all (before)': least((host, _room, overcommit) => -unpromised(host, overcommit).memoryMb),
  'best balanced of 4': least(imbalance, 4),
  'fullest of 4': least((...of) => -share(...of), 4),
  'best fit (fullest of all)': least((...of) => -share(...of)),
};
