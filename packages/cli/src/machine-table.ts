// Prints machines as a table, and remarks on stderr, such as the error of a machine or the volume that keeps its disk.
import type { Machine } from '@sandbar/contract/machine.ts';
import { printJson, printLine, printNotice, printRows } from './print.ts';

const HEADINGS = ['ID', 'NAME', 'STATE', 'OPERATION', 'VCPUS', 'MEMORY MB', 'DISK GB', 'IP', 'CREATED', 'EXPIRES'];

/** Prints machines as a table. As JSON, one machine is an object, and several are an array. */
export function printMachineAnswers(machines: readonly Machine[], isJson: boolean | undefined): void {
  if (isJson) printJson(machines.length === 1 ? machines[0] : machines);
  else printMachines(machines);
}

export function printMachines(machines: readonly Machine[]): void {
  const rows = machines.map((machine) => [
    machine.id,
    machine.name || '-',
    machine.state,
    machine.operation?.kind ?? '-',
    `${machine.vcpus}`,
    `${machine.memory_mb}`,
    `${machine.rootfs_size_gb}`,
    machine.private_ip ?? '-',
    machine.created_at,
    machine.expires_at === null ? '-' : `${machine.expires_at} (${machine.on_expiry})`,
  ]);
  printRows(HEADINGS, rows, 'No machines.');
  machines.forEach(printRemarks);
}

/** Prints one machine without a table: its state and its remarks. */
export function printMachineLine(machine: Machine): void {
  printLine(`${machine.id}: ${machine.state}`);
  printRemarks(machine);
}

function printRemarks(machine: Machine): void {
  for (const remark of remarksOn(machine)) printNotice(`${machine.id}: ${remark}`);
}

/** The machine's error, its unfinished operation, and the volume that keeps its disk. */
function remarksOn({ error, operation, root_volume_id, state }: Machine): string[] {
  const remarks: string[] = [];
  if (error !== null) remarks.push(error);
  if (operation !== null) {
    const failure = operation.last_error === null ? '' : `: ${operation.last_error}`;
    const attempt = operation.attempts > 1 ? `, attempt ${operation.attempts}` : '';
    remarks.push(`${operation.kind} is under way since ${operation.since}${attempt}${failure}`);
  }
  if (state === 'destroyed' && root_volume_id !== null) remarks.push(`its disk is kept as volume ${root_volume_id}`);
  return remarks;
}
