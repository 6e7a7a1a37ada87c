// The files of a host that has joined a fleet. The key, its certificate and the trusted authorities are one file, which
// is replaced as a whole, so after a crash they always belong together.
import { chmodSync, mkdirSync, rmSync } from 'node:fs';
import { homePaths } from '@sandbar/contract/home.ts';
import { readRecord, writeRecordDurably } from '../storage/record-file.ts';

/** With what the agent proves who it is, and whom it trusts. All PEM. */
export type Identity = { key: string; certificate: string; authorities: string[] };

/** What the operator said when the host joined. */
export type JoinRecord = {
  /** The API of the control plane. */
  url: string;
  /** HOST:PORT at which the control plane reaches the agent. */
  address: string;
  host_id: string;
  /** HOST:PORT at which the agent listens. Absent: all interfaces, at the default port. */
  listen?: string;
};

const filesOf = (home: string) => {
  const { fleet } = homePaths(home);
  return { identity: `${fleet}/identity.json`, join: `${fleet}/join.json`, pendingKey: `${fleet}/pending-key.json` };
};

/** Returns the identity, or undefined when the host has not joined. */
export const readIdentity = (home: string) => readRecord<Identity>(filesOf(home).identity);

/** Throws `fleet_capacity` on a full disk. So do the other functions that write. */
export function writeIdentity(home: string, identity: Identity): void {
  makeFolder(home);
  writeRecordDurably(filesOf(home).identity, identity);
}

export const readJoinRecord = (home: string) => readRecord<JoinRecord>(filesOf(home).join);

export function writeJoinRecord(home: string, record: JoinRecord): void {
  makeFolder(home);
  writeRecordDurably(filesOf(home).join, record);
}

/** Returns the key whose certificate has not arrived yet, PEM. */
export const readPendingKey = (home: string) => readRecord<{ key: string }>(filesOf(home).pendingKey)?.key;

export function writePendingKey(home: string, key: string): void {
  makeFolder(home);
  writeRecordDurably(filesOf(home).pendingKey, { key });
}

export function removePendingKey(home: string): void {
  rmSync(filesOf(home).pendingKey, { force: true });
}

/** Removes everything above: the host is no member of a fleet any more. */
export function removeFleetFiles(home: string): void {
  // Remove the file that makes the host a member first. Otherwise a crash could leave a member without a join record.
  rmSync(filesOf(home).identity, { force: true });
  rmSync(homePaths(home).fleet, { recursive: true, force: true });
}

function makeFolder(home: string): void {
  const { fleet } = homePaths(home);
  mkdirSync(fleet, { recursive: true });
  chmodSync(fleet, 0o700);
}
