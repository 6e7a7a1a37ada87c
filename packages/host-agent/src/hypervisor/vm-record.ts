// Keeps a record of each VM, with which a restarted agent finds the VM again. The records lie outside the run
// directories, because the VM owns its run directory and could forge them there.
import { readdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { readRecord, writeRecord } from '../storage/record-file.ts';

export type VmRecord = {
  vmId: string;
  uid: number | null;
  runDir: string;
  /** Authenticates sessions with the guest agent; 64 hex digits. */
  channelToken: string;
  templateKey: string | null;
  /** The QEMU process; null until QEMU was started. */
  process: { pid: number; startTicks: string } | null;
};

const VM_ID = /^[0-9a-f]{12}$/;

/** Keeps one JSON file per VM in a folder that only the agent writes. */
export class VmRecords {
  readonly #dir: string;

  constructor(dir: string) {
    this.#dir = dir;
  }

  /** Creates or replaces a record. Throws `fleet_capacity` on a full disk. */
  write(record: VmRecord): void {
    writeRecord(this.#path(record.vmId), record);
  }

  remove(vmId: string): void {
    rmSync(this.#path(vmId), { force: true });
  }

  /** Returns all valid records and skips the others. Throws when a record exists but cannot be read now. */
  list(): VmRecord[] {
    return readdirSync(this.#dir).flatMap((name) => this.#read(name) ?? []);
  }

  /**
   * Removes invalid records: files that a crash of the host left empty or half-written (their VMs ended with the host),
   * and files whose content names another VM than the file name. Throws when a record cannot be read now, because it
   * may belong to a running VM.
   */
  removeBroken(): void {
    for (const name of readdirSync(this.#dir))
      if (!this.#read(name)) rmSync(join(this.#dir, name), { recursive: true, force: true });
  }

  #read(name: string): VmRecord | undefined {
    try {
      const record = readRecord<VmRecord>(join(this.#dir, name));
      const isWhole = record && VM_ID.test(record.vmId) && typeof record.runDir === 'string';
      return isWhole && name === `${record.vmId}.json` ? record : undefined;
    } catch (error) {
      if (error instanceof SyntaxError || (error as NodeJS.ErrnoException).code === 'EISDIR') return undefined;
      throw error;
    }
  }

  #path(vmId: string): string {
    return join(this.#dir, `${vmId}.json`);
  }
}
