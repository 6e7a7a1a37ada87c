// The ids of the hosts and machines of a benchmark, which the database and the fake hosts both know.
const uuid = (kind: number, number: number) => `019b0000-0000-7000-800${kind}-${number.toString(16).padStart(12, '0')}`;

export const hostIdOf = (host: number): string => uuid(1, host);
export const machineIdOf = (machine: number): string => uuid(2, machine);
