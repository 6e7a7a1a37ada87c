// What a client knows of its machines, volumes and snapshots. A client does one act after the other and shares nothing
// with other clients, so its knowledge is exact, except where a kill interrupts an act.

/** Files that jobs wrote. Each file is written once, by one job, and is named after it. */
export type Disk = {
  /** SHA-256 by name, of files that a job has written and synced. */
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
  /** Jobs whose results were not read yet. */
  jobs: WrittenJob[];
  /** How often its VM was killed, as far as the client has dealt with it. */
  killsSeen: number;
  /** The name of a snapshot that is being taken. */
  takes?: string | undefined;
  /** The disk that a restore under way goes back to. */
  restoring?: Disk | undefined;
};

export type Volume = { id: string; name: string; machine: Machine | undefined; disk: Disk };
export type Snapshot = { id: string; disk: Disk };

export type Job = {
  id: string;
  machine: Machine;
  command: string;
  timeoutSec: number;
  /** Whether the answer to its start was lost: then the service may have lost the job before it ran. */
  isStartUncertain: boolean;
};

/** A job that writes known bytes, to its output and to a file. */
export type WrittenJob = Job & { tag: string; disk: Disk; stdout: Buffer; stderr: Buffer; exitCode: number };

export const emptyDisk = (): Disk => ({ certain: new Map(), doubtful: new Set() });

export const copyDisk = ({ certain, doubtful }: Disk): Disk => ({
  certain: new Map(certain),
  doubtful: new Set(doubtful),
});

/** A disk that is one of two, and nobody knows which. */
export function eitherDisk(one: Disk, other: Disk): Disk {
  const certain = new Map([...one.certain].filter(([name]) => other.certain.has(name)));
  const names = [one, other].flatMap((disk) => [...disk.certain.keys(), ...disk.doubtful]);
  return { certain, doubtful: new Set(names.filter((name) => !certain.has(name))) };
}
