// The states, actions, bounds and defaults of machines. This file imports nothing, so the dashboard can use the tables
// without the library for schemas.

export const MACHINE_STATES = ['pending', 'provisioning', 'running', 'stopped', 'error', 'destroyed'] as const;
export type MachineState = (typeof MACHINE_STATES)[number];

export const MACHINE_ACTIONS = [
  'start',
  'stop',
  'destroy',
  'exec',
  'attach',
  'detach',
  'snapshot',
  'snapshot-memory',
  'restore',
] as const;
export type MachineAction = (typeof MACHINE_ACTIONS)[number];

/**
 * The actions that a machine allows in each state. `noop`: the machine is in the wanted state already, so the request
 * is answered with 200 and changes nothing. An action that is not listed is refused with 409. The server, the host
 * agent and the buttons of clients all use this table.
 */
export const MACHINE_STATE_TABLE: Record<MachineState, Partial<Record<MachineAction, 'allowed' | 'noop'>>> = {
  pending: { destroy: 'allowed' },
  provisioning: { destroy: 'allowed' },
  running: {
    start: 'noop',
    stop: 'allowed',
    destroy: 'allowed',
    exec: 'allowed',
    attach: 'allowed',
    detach: 'allowed',
    snapshot: 'allowed',
    'snapshot-memory': 'allowed',
    restore: 'allowed',
  },
  stopped: {
    start: 'allowed',
    stop: 'noop',
    destroy: 'allowed',
    attach: 'allowed',
    detach: 'allowed',
    snapshot: 'allowed',
    restore: 'allowed',
  },
  // A detach is allowed, so that the volumes of a machine that died can be used elsewhere.
  error: { destroy: 'allowed', detach: 'allowed' },
  destroyed: {},
};

/**
 * What separates machines from the host: hardware virtualisation (`kvm`), or emulation, which is no security boundary.
 */
export const ISOLATIONS = ['kvm', 'emulated'] as const;
export type Isolation = (typeof ISOLATIONS)[number];

/** Bounds of a machine that hold for every tier. */
export const MACHINE_BOUNDS = {
  nameLength: 255,
  /** The most that QEMU's machine type microvm supports. */
  vcpusMax: 288,
  memoryMbMin: 128,
  /** 4 TiB: more than any host has, and small enough that sums of it fit into 32 bits. */
  memoryMbMax: 4 * 1024 * 1024,
  rootfsGbMax: 1024,
  metadataKeys: 64,
  metadataBytes: 16 * 1024,
  /** The most bytes of the default environment, written as JSON. */
  envBytes: 16 * 1024,
  expirySecMin: 10,
  /** A year. */
  expirySecMax: 31_536_000,
} as const;

/** The kinds of unfinished operations that a machine shows in its `operation` field. */
export const OPERATION_KINDS = [
  'create',
  'start',
  'stop',
  'destroy',
  'restore',
  'snapshot',
  'attach',
  'detach',
  'move',
] as const;
export type OperationKind = (typeof OPERATION_KINDS)[number];

/** All kinds of operations, also those that no machine shows. */
export const ALL_OPERATION_KINDS = [
  ...OPERATION_KINDS,
  'create_volume',
  'delete_volume',
  'delete_snapshot',
  'remove_copy',
  'expire',
] as const;
export type AnyOperationKind = (typeof ALL_OPERATION_KINDS)[number];

/** What happens to a machine when it expires. */
export const EXPIRY_ACTIONS = ['destroy', 'stop'] as const;
export type ExpiryAction = (typeof EXPIRY_ACTIONS)[number];

/** The values of fields that a create request leaves out. */
export const MACHINE_DEFAULTS = { vcpus: 1, memory_mb: 1024, rootfs_size_gb: 10, stack: 'base' } as const;
