// Chooses the host of a new machine with regard to the disks that it needs. A snapshot stays where it is, unless other
// hosts can fetch it. Volumes stay if their host can take the machine; otherwise they move to one that can.
import type { App } from '../app.ts';
import type { VolumeRow } from '../db/tables.ts';
import { chooseReachableHost } from '../hosts/choose-host.ts';
import { HostUnavailable } from '../hosts/client.ts';
import type { HostFacts } from '../hosts/host-table.ts';
import { canTake, type PlacementRequest } from '../hosts/placement.ts';
import { reachability } from '../hosts/reachable.ts';
import { MustMove } from '../moves/request.ts';
import { fleetIsFull, hostIsFull } from './refusals.ts';

export type PlaceRequest = {
  hosts: readonly HostFacts[];
  wanted: PlacementRequest;
  /** The image that a host must have which takes over a root volume. */
  stack: string;
  /** Whether a host that does not have the image of `wanted` can fetch it. */
  isInStore: boolean;
  /** The host of the machine's snapshot, when no other host can have that. */
  fixed: string | undefined;
  /** The host of the machine's snapshot, where it need not be fetched. */
  preferred: string | undefined;
  /** The host that has all disks, if there is one. */
  home: string | undefined;
  disks: readonly VolumeRow[];
  tried: ReadonlySet<string>;
  avoid: ReadonlySet<string>;
};

/**
 * Returns the host of the machine. Throws `MustMove` when disks have to come to it first; `fleet_capacity` when no
 * possible host has room; `host_unavailable` when the disks cannot be reached.
 */
export function chooseHostOf(app: App, request: PlaceRequest): HostFacts {
  const { hosts, wanted, fixed, home, disks, tried } = request;
  if (disks.length === 0) return chooseWithoutDisks(app, request);
  if (home !== undefined) {
    const host = choose(
      app,
      hosts.filter(({ id }) => id === home),
      request,
      tried,
    );
    const isThere = disks.every(({ host_id }) => host_id === host?.id);
    if (host && isThere) return host;
    if (host) throw moveTo(app, host.id, disks);
    if (fixed !== undefined) throw hostIsFull('snapshot', wanted.room);
  }
  const host = chooseOther(app, request);
  if (host) throw moveTo(app, host.id, disks);
  throw home === undefined ? fleetIsFull(wanted.room) : hostIsFull('volume', wanted.room);
}

/** Returns the host of the snapshot if that answers and has room, else any other host that may have the machine. */
function chooseWithoutDisks(app: App, request: PlaceRequest): HostFacts {
  const { hosts, wanted, fixed, preferred, tried, avoid } = request;
  const isFirst = ({ id }: HostFacts) => id === preferred;
  const others = hosts.filter((host) => !isFirst(host));
  const groups = preferred === undefined ? [hosts] : [hosts.filter(isFirst), ...(fixed === undefined ? [others] : [])];
  const answering = groups.filter((group) => group.some(reachability(app)));
  const excluded = new Set([...tried, ...avoid]);
  for (const group of answering.length > 0 ? answering : groups) {
    const host = choose(app, group, request, excluded);
    if (host) return host;
  }
  throw fixed === undefined ? fleetIsFull(wanted.room) : hostIsFull('snapshot', wanted.room);
}

/** Returns one of `hosts` that has the image, else one that can fetch it. */
function choose(
  app: App,
  hosts: readonly HostFacts[],
  { wanted, isInStore }: PlaceRequest,
  excluded: ReadonlySet<string>,
): HostFacts | undefined {
  const host = chooseReachableHost(app, hosts, wanted, excluded);
  if (host || !isInStore) return host;
  return chooseReachableHost(app, hosts, { ...wanted, stack: undefined }, excluded);
}

/** Returns the host that has most of the disks if it can take the rest and the machine, else any host that can. */
function chooseOther(app: App, { hosts, wanted, stack, disks, tried, avoid }: PlaceRequest): HostFacts | undefined {
  const shareOf = (hostId: string) => sizeOf(disks.filter(({ host_id }) => host_id === hostId));
  const excluded = new Set([...tried, ...avoid]);
  const requestAt = (hostId: string): PlacementRequest => {
    const incoming = sizeOf(disks) - shareOf(hostId);
    return { room: { ...wanted.room, diskGb: wanted.room.diskGb + incoming }, stack };
  };
  const reachable = new Set(app.hosts.reachableIds());
  const homes = hosts
    .filter(({ id }) => shareOf(id) > 0 && reachable.has(id) && !excluded.has(id))
    .filter((host) => canTake(host, requestAt(host.id), app.config.overcommit))
    .sort((a, b) => shareOf(b.id) - shareOf(a.id));
  const others = hosts.filter(({ id }) => shareOf(id) === 0 && reachable.has(id));
  if (homes[0] || others.length === 0) return homes[0];
  return chooseReachableHost(app, others, requestAt(''), excluded);
}

const sizeOf = (disks: readonly VolumeRow[]): number => disks.reduce((sum, { size_gb }) => sum + size_gb, 0);

function moveTo(app: App, toHostId: string, disks: readonly VolumeRow[]): MustMove {
  const moving = disks.filter(({ host_id }) => host_id !== toHostId);
  const reachable = new Set(app.hosts.reachableIds());
  if (moving.some(({ host_id }) => !reachable.has(host_id))) throw new HostUnavailable(false);
  return new MustMove(moving, toHostId);
}
