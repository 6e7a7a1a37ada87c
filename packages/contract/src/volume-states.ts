// The kinds, states, actions and bounds of volumes. This file imports nothing, so the dashboard can use the tables
// without the library for schemas.

export const VOLUME_KINDS = ['data', 'root'] as const;
export type VolumeKind = (typeof VOLUME_KINDS)[number];

export const VOLUME_STATES = ['available', 'attached', 'error'] as const;
export type VolumeState = (typeof VOLUME_STATES)[number];

export const VOLUME_ACTIONS = ['attach', 'detach', 'delete'] as const;
export type VolumeAction = (typeof VOLUME_ACTIONS)[number];

/** The actions that a volume allows in each state. An action that is not listed is refused with 409. */
export const VOLUME_STATE_TABLE: Record<VolumeState, Partial<Record<VolumeAction, 'allowed'>>> = {
  available: { attach: 'allowed', delete: 'allowed' },
  attached: { detach: 'allowed' },
  // A volume in error may still be attached; then it must be detached before it can be deleted.
  error: { detach: 'allowed', delete: 'allowed' },
};

export const VOLUME_BOUNDS = {
  nameLength: 255,
  sizeGbMin: 5,
  sizeGbMax: 1024,
  /** Data volumes that one machine can have. */
  perMachine: 8,
  mountPathLength: 255,
} as const;

/** System folders of a machine: no volume may be mounted at them or below them. */
export const UNMOUNTABLE = ['/proc', '/sys', '/dev', '/run'] as const;

/** Where a volume is mounted when the attach names no path. */
export const defaultMountPath = (volumeId: string): string => `/mnt/${volumeId}`;
