// What is kept of every VM for an agent that finds it again, outside its run directory, which belongs to the VM.
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readRecord, writeRecord } from '../storage/record-file.ts';

export type VmRecord = {
  vmId: string;
  uid: number | null;
  runDir: string;
  /** 64 hex digits that open a session with the guest agent. */
  channelToken: string;
  templateKey: string | null;
  /** Its QEMU process; null until it was started. */
  process: { pid: number; startTicks: string } | null;
};

/** One file a VM in a folder of ours. */
export class VmRecords {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Throws `fleet_capacity` on a full disk. */
  write(record: VmRecord): void {
    writeRecord(this.#path(record.vmId), record);
  }

  remove(vmId: string): void {
    rmSync(this.#path(vmId), { force: true });
  }

  /** All that can be read; one that a crash of the host left empty says nothing, and its VM is gone with that boot. */
  list(): VmRecord[] {
    return readdirSync(this.#dir)
      .filter((name) => name.endsWith('.json'))
      .flatMap((name) => {
        try {
          return readRecord<VmRecord>(join(this.#dir, name)) ?? [];
        } catch {
          rmSync(join(this.#dir, name), { force: true });
          return [];
        }
      });
  }

  #path(vmId: string): string {
    return join(this.#dir, `${vmId}.json`);
  }
}
