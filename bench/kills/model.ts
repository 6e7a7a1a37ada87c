// What a client knows about its machines, volumes and snapshots. A client does one operation at a time and shares
// nothing with other clients, so it knows their exact state, except after a kill interrupts an operation.

/** Files that jobs wrote. Each file is written once, by one job, and is named after it. */
export type Disk = {
  /** The files that a job has written and synced: their SHA-256 by name. */
  certain: Map<string, string>;
  /** Names of files that may be absent or incomplete. */
  doubtful: Set<string>;
};

export type Machine = {
  id: string;
  name: string;
  state: 'running' | 'stopped';
  disk: Disk;
  snapshots: Snapshot[];
  /** Jobs whose results the client has not read yet. */
  jobs: WrittenJob[];
  /** How many kills of its VM, and how many stops by the spend guard, the client has already handled. */
  seen: { kills: number; guardStops: number };
  /** The name of the snapshot that the client is taking. */
  takes?: string | undefined;
  /** The disk content of the snapshot that an unfinished restore goes back to. */
  restoring?: Disk | undefined;
};

export type Volume = { id: string; name: string; machine: Machine | undefined; disk: Disk };
export type Snapshot = { id: string; disk: Disk };

export type Job = {
  id: string;
  machine: Machine;
  command: string;
  timeoutSec: number;
  /** Whether the answer to the start was lost. Then the service may have lost the job before it ran. */
  isStartUncertain: boolean;
};

/** A job that writes known bytes to its output and to a file. */
export type WrittenJob = Job & { tag: string; disk: Disk; stdout: Buffer; stderr: Buffer; exitCode: number };

export const emptyDisk = (): Disk => ({ certain: new Map(), doubtful: new Set() });

export const copyDisk = ({ certain, doubtful }: Disk): Disk => ({
  certain: new Map(certain),
  doubtful: new Set(doubtful),
});

/** Combines two possible disk contents when nobody knows which one is real: only files in both are certain. */
export function eitherDisk(one: Disk, other: Disk): Disk {
  const certain = new Map([...one.certain].filter(([name]) => other.certain.has(name)));
  const names = [one, other].flatMap((disk) => [...disk.certain.keys(), ...disk.doubtful]);
  return { certain, doubtful: new Set(names.filter((name) => !certain.has(name))) };
}
