// Whether what a host has and no row knows is certainly ours to remove. Ids are version 7 and so tell when they were made:
// what is older than this database's own knowledge of the host comes from another database (a lost one, or one of another
// service), and to remove that would be to destroy somebody's machines because of a wrong SANDBAR_DATABASE_URL.

/** The clocks of the database and of the replicas that make ids may differ by this much, ms. */
const CLOCK_SLACK_MS = 60_000;

/** When a version 7 id was made, in ms of the epoch; undefined for ids of other versions. */
export function timeOfId(id: string): number | undefined {
  return id[14] === '7' ? Number.parseInt(id.slice(0, 8) + id.slice(9, 13), 16) : undefined;
}

/** Whether this database gave the id away: it knew the host (since `hostKnownSince`) when the id was made. */
export function isOfThisDatabase(id: string, hostKnownSince: Date): boolean {
  const madeAt = timeOfId(id);
  return madeAt !== undefined && madeAt >= hostKnownSince.getTime() - CLOCK_SLACK_MS;
}
