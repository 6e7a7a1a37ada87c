// Decides whether an object (machine, volume, snapshot) that a host has, but that no row of the database knows, may be
// deleted. Ids are UUIDs of version 7, which contain their time of creation. An id that is older than the host's row in
// this database was created by another database, for example after a restore or with a wrong SANDBAR_DATABASE_URL.
// Deleting such an object could destroy somebody else's machines.

/** How much the clocks of the database and of the replicas may differ, in milliseconds. The replicas create the ids. */
const CLOCK_SLACK_MS = 60_000;

/**
 * Returns the creation time of a version 7 id in milliseconds since the epoch, or undefined for an id of another
 * version.
 */
export function timeOfId(id: string): number | undefined {
  return id[14] === '7' ? Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) : undefined;
}

/**
 * Returns true if the id was created after this database had registered the host (`hostKnownSince`). Then the id
 * belongs to this database.
 */
export function isOfThisDatabase(id: string, hostKnownSince: Date): boolean {
  const madeAt = timeOfId(id);
  return madeAt !== undefined && madeAt >= hostKnownSince.getTime() - CLOCK_SLACK_MS;
}
