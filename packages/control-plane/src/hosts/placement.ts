// Chooses the host of a new machine or volume. A pure function of what a replica knows about the hosts. That knowledge
// may be a second old, and parallel requests may choose the same host. The conditional UPDATE in `reserveRoom` decides
// which of them get its room.
//
// The rule: compare four random hosts that can take the request, and four that also have a template of its shape. Take
// the one that is the least full afterwards. A template counts as a quarter of a host, because a clone starts ten times
// faster than a cold boot. How full a host is says the resource of which the largest share is reserved.
// bench/placement.ts compares this rule with others.
import type { HostRow } from '../db/tables.ts';
import { capacityOf, type HostRoom, hasRoomFor, type Overcommit, type Room } from './room.ts';

/**
 * How many hosts of each kind are compared. Parallel requests compare different ones, so they do not all choose the
 * same host.
 */
const COMPARED = 4;
/** How much fuller a host with a template may be than one without, as a share of its size. */
const TEMPLATE_WORTH = 0.25;

/**
 * `stack`: the image that the host must have; undefined if none is needed, as for a volume. With `stack`, `room` has
 * the vCPUs and the memory of the machine.
 */
export type PlacementRequest = { room: Room; stack: string | undefined };
export type Candidate = HostRoom &
  Pick<HostRow, 'id' | 'images' | 'draining' | 'templates'> & {
    /** A reservation was refused since the host's row was read, so the row is out of date. */
    isRefusing: boolean;
  };

/**
 * Returns the host for a new machine or volume, or undefined when no host can take it. `random` returns numbers from 0
 * up to, but not including, 1. `mayUse` excludes hosts. It is called only for hosts that are looked at, because a check
 * of a thousand hosts takes longer than the choice.
 */
export function chooseHost<T extends Candidate>(
  hosts: readonly T[],
  request: PlacementRequest,
  overcommit: Overcommit,
  random: () => number,
  mayUse: (host: T) => boolean = () => true,
): T | undefined {
  const hasTemplate = hasTemplateFor(request);
  const isFitting = (host: T) => mayUse(host) && canTake(host, request, overcommit);
  const compared = [...someHosts(hosts, isFitting, random), ...someHosts(hosts.filter(hasTemplate), isFitting, random)];
  let [best, least] = [undefined as T | undefined, Number.POSITIVE_INFINITY];
  for (const host of compared) {
    const score = usedShare(host, request.room, overcommit) - (hasTemplate(host) ? TEMPLATE_WORTH : 0);
    if (score < least) [best, least] = [host, score];
  }
  return best;
}

/** Returns up to `COMPARED` random hosts that fit. */
function someHosts<T>(hosts: readonly T[], isFitting: (host: T) => boolean, random: () => number): T[] {
  const fitting: T[] = [];
  for (const host of inRandomOrder(hosts, random)) {
    if (!isFitting(host)) continue;
    fitting.push(host);
    if (fitting.length === COMPARED) break;
  }
  return fitting;
}

const hasTemplateFor =
  ({ room, stack }: PlacementRequest) =>
  ({ templates }: Candidate): boolean =>
    templates.some(
      (template) => template.stack === stack && template.vcpus === room.vcpus && template.memory_mb === room.memoryMb,
    );

/** Returns true if the host takes new machines, has the image and has room for the request. */
export function canTake(host: Candidate, { room, stack }: PlacementRequest, overcommit: Overcommit): boolean {
  return (
    !host.draining &&
    !host.isRefusing &&
    hasRoomFor(host, room, overcommit) &&
    (stack === undefined || host.images.some((image) => image.stack === stack))
  );
}

/** The largest share of memory, vCPUs or disk that is reserved once `room` is: 1 means that the host is full. */
export function usedShare(host: HostRoom, room: Room, overcommit: Overcommit): number {
  const most = capacityOf(host, overcommit);
  return Math.max(
    (host.reserved_memory_mb + room.memoryMb) / (most.memoryMb * overcommit.memory),
    (host.reserved_vcpus + room.vcpus) / (most.vcpus * overcommit.vcpus),
    room.diskGb === 0 ? 0 : (host.reserved_disk_gb + room.diskGb) / most.diskGb,
  );
}

/** Yields all items in random order. Takes time only for the items that are asked for, and for one copy of the list. */
function* inRandomOrder<T>(items: readonly T[], random: () => number): Generator<T> {
  const rest = [...items];
  while (rest.length > 0) {
    const index = Math.floor(random() * rest.length);
    const [chosen, last] = [rest[index] as T, rest.pop() as T];
    if (index < rest.length) rest[index] = last;
    yield chosen;
  }
}
