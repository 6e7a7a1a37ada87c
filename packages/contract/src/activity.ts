// The activity feed: the actions that it records and the fields of each entry. The metadata of an entry may have only
// the keys that are listed here, so no script, output or user-chosen name can get into the feed.
import { type Static, Type } from 'typebox';
import { Nullable, OneOf, Timestamp, Uuid } from './fields.ts';

export const ACTIVITY_CATEGORIES = ['machine', 'volume', 'snapshot', 'exec'] as const;
export type ActivityCategory = (typeof ACTIVITY_CATEGORIES)[number];

type ValueType = 'string' | 'integer' | 'integer?' | 'boolean' | 'uuid';

/** Every action, with its category and the keys of its metadata. A value of type `integer?` may be null. */
export const ACTIVITY_ACTIONS = {
  'machine.created': {
    category: 'machine',
    metadata: { stack: 'string', vcpus: 'integer', memory_mb: 'integer', rootfs_gb: 'integer' },
  },
  'machine.started': { category: 'machine', metadata: {} },
  'machine.stopped': { category: 'machine', metadata: {} },
  'machine.destroyed': {
    category: 'machine',
    metadata: { preserve_storage: 'boolean', snapshots_deleted: 'integer' },
  },
  exec: { category: 'exec', metadata: { exit_code: 'integer?', timeout_sec: 'integer' } },
  'volume.created': { category: 'volume', metadata: { volume_id: 'uuid', size_gb: 'integer' } },
  'volume.attached': { category: 'volume', metadata: { volume_id: 'uuid' } },
  'volume.detached': { category: 'volume', metadata: { volume_id: 'uuid' } },
  'volume.deleted': { category: 'volume', metadata: { volume_id: 'uuid' } },
  'snapshot.created': { category: 'snapshot', metadata: { snapshot_id: 'uuid' } },
  'snapshot.restored': { category: 'snapshot', metadata: { snapshot_id: 'uuid' } },
  'snapshot.deleted': { category: 'snapshot', metadata: { snapshot_id: 'uuid' } },
} as const satisfies Record<string, { category: ActivityCategory; metadata: Record<string, ValueType> }>;
export type ActivityAction = keyof typeof ACTIVITY_ACTIONS;

type ValueOf<T> = T extends 'integer'
  ? number
  : T extends 'integer?'
    ? number | null
    : T extends 'boolean'
      ? boolean
      : string;
type MetadataOf<A extends ActivityAction> = {
  [K in keyof (typeof ACTIVITY_ACTIONS)[A]['metadata']]: ValueOf<(typeof ACTIVITY_ACTIONS)[A]['metadata'][K]>;
};

/**
 * Who did the action. `user`: the account holder, through the API or the dashboard. The other actors are parts of the
 * service. `system:host`: the machine stopped by itself (its guest powered off, or its host restarted).
 * `system:operator`: the machine was stopped together with the service. `system:expiry`: the machine reached its
 * `expires_at`.
 */
export const ACTIVITY_ACTORS = [
  'user',
  'system:spend_guard',
  'system:reclaimer',
  'system:expiry',
  'system:host',
  'system:operator',
] as const;
export type ActivityActor = (typeof ACTIVITY_ACTORS)[number];

/** An entry to write. The action decides which metadata it must have. */
export type NewActivity = {
  [A in ActivityAction]: { action: A; actor: ActivityActor; machineId?: string; metadata: MetadataOf<A> };
}[ActivityAction];

/**
 * Throws TypeError unless the metadata has exactly the keys of its action, each with the right type. Any other metadata
 * is a bug of the service.
 */
export function checkActivityMetadata({ action, metadata }: NewActivity): void {
  const allowed: Record<string, ValueType> = ACTIVITY_ACTIONS[action].metadata;
  const given = Object.entries(metadata);
  const isComplete = given.length === Object.keys(allowed).length;
  if (!isComplete || !given.every(([key, value]) => Object.hasOwn(allowed, key) && isOfType(value, allowed[key]))) {
    throw new TypeError(`The metadata of ${action} must be ${JSON.stringify(allowed)} and nothing else.`);
  }
}

const UUID = /^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$/;

function isOfType(value: unknown, type: ValueType | undefined): boolean {
  switch (type) {
    case 'integer':
      return Number.isSafeInteger(value);
    case 'integer?':
      return value === null || Number.isSafeInteger(value);
    case 'uuid':
      return typeof value === 'string' && UUID.test(value);
    default:
      return typeof value === type;
  }
}

/** `page_size` of the feed: the default, and the maximum. A request for more entries gets the maximum. */
export const ACTIVITY_PAGE = { default: 50, max: 200 } as const;

export const ActivityEntry = Type.Object(
  {
    machine_id: Type.Optional(Type.String({ description: 'Absent for actions without a machine.' })),
    action: OneOf(Object.keys(ACTIVITY_ACTIONS) as ActivityAction[]),
    actor: OneOf(ACTIVITY_ACTORS, { description: 'user, or the worker of the service that did it.' }),
    metadata: Type.Record(Type.String(), Type.Union([Type.String(), Type.Boolean(), Nullable(Type.Integer())]), {
      description: 'A fixed list of keys per action; ids and numbers only.',
    }),
    created_at: Timestamp(),
  },
  { title: 'ActivityEntry' },
);
export type ActivityEntry = Static<typeof ActivityEntry>;

export const ActivityQuery = Type.Object(
  {
    category: Type.Optional(OneOf([...ACTIVITY_CATEGORIES, 'all'], { default: 'all' })),
    q: Type.Optional(
      Type.String({ maxLength: 255, description: 'Case-insensitive part of the action, the actor or a resource id.' }),
    ),
    from: Type.Optional(Timestamp('RFC 3339. The oldest created_at, inclusive.')),
    to: Type.Optional(Timestamp('RFC 3339. The newest created_at, inclusive; not before from.')),
    page_size: Type.Optional(
      Type.Integer({ minimum: 1, default: ACTIVITY_PAGE.default, description: 'Over 200 is 200.' }),
    ),
    cursor: Type.Optional(Type.String({ maxLength: 1024, description: 'next_cursor of the page before.' })),
  },
  { additionalProperties: false },
);
export type ActivityQuery = Static<typeof ActivityQuery>;

export const ActivityList = Type.Object(
  {
    activity: Type.Array(ActivityEntry),
    next_cursor: Type.String({ description: 'Empty at the end.' }),
  },
  { title: 'ActivityList' },
);
export type ActivityList = Static<typeof ActivityList>;

export const ActivityParams = Type.Object({ id: Uuid('The machine.') });
