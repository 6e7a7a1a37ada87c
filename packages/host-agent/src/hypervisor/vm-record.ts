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

const VM_ID = /^[0-9a-f]{12}$/;

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

  /** All that say something; changes nothing. Throws when one cannot be read now. */
  list(): VmRecord[] {
    return readdirSync(this.#dir).flatMap((name) => this.#read(name) ?? []);
  }

  /**
   * Removes what says nothing: what a crash of the host left empty or half-written, for its VM is gone with that boot,
   * and what speaks of another VM than its name. Throws when one cannot be read now: it may be that of a VM that runs.
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
