// A machine as the tools show it: the fields of the API that an agent can use.
import type { Machine } from '@sandbar/contract/machine.ts';
import { z } from 'zod';

export const MachineRecord = z.object({
  machine_id: z.string(),
  name: z.string(),
  state: z.string(),
  vcpus: z.number(),
  memory_mb: z.number(),
  rootfs_size_gb: z.number(),
  stack: z.string(),
  private_ip: z.string().nullable(),
  error: z.string().nullable(),
  created_at: z.string(),
  expires_at: z.string().nullable(),
  on_expiry: z.string(),
});
export type MachineRecord = z.infer<typeof MachineRecord>;

export function toMachineRecord(machine: Machine): MachineRecord {
  const { id, name, state, vcpus, memory_mb, rootfs_size_gb, stack, private_ip, error } = machine;
  const { created_at, expires_at, on_expiry } = machine;
  const size = { vcpus, memory_mb, rootfs_size_gb };
  return { machine_id: id, name, state, ...size, stack, private_ip, error, created_at, expires_at, on_expiry };
}

/** One line about a machine. */
export function machineLine(machine: Machine): string {
  const { id, name, state, vcpus, memory_mb, rootfs_size_gb, stack, expires_at, on_expiry, error } = machine;
  const label = name === '' ? '' : ` ${JSON.stringify(name)}`;
  const size = `${vcpus} vcpus, ${memory_mb} MiB, ${rootfs_size_gb} GiB disk`;
  const expiry = expires_at === null ? '' : `, ${on_expiry} at ${expires_at}`;
  return `${id}${label}: ${state}, ${stack}, ${size}${expiry}${error === null ? '' : `, error: ${error}`}`;
}

/** The result of tools that change the state of a machine. */
export const MachineState = MachineRecord.pick({ machine_id: true, state: true, error: true });

/** Makes the result of a tool that changes the state of a machine. */
export function stateResult(machine: Machine): { data: z.infer<typeof MachineState>; text: string } {
  const { id, state, error } = machine;
  return { data: { machine_id: id, state, error }, text: machineLine(machine) };
}

/** Makes the result of a tool that returns one machine. */
export function machineResult(machine: Machine): { data: MachineRecord; text: string } {
  return { data: toMachineRecord(machine), text: machineLine(machine) };
}
