// Files of a machine: the shapes of the API, and the shapes of what a guest agent answers. A guest may be hostile, so its
// answers are checked against the second part, which bounds every field.
import { type Static, Type } from 'typebox';
import { OneOf, Timestamp } from './fields.ts';
import { ABSOLUTE_PATH_PATTERN, FILE_MODE_PATTERN, NO_NUL_PATTERN } from './patterns.ts';

export const FILE_TYPES = ['file', 'directory', 'symlink', 'other'] as const;
export type FileType = (typeof FILE_TYPES)[number];

export const FILE_BOUNDS = {
  /** How deep a list may go below its directory. */
  depthMax: 64,
  /** Entries of one page of a list. */
  pageMax: 1000,
  /** Names of refused entries of an archive that its answer lists. */
  refusedListed: 20,
} as const;

export const FileEntry = Type.Object(
  {
    path: Type.String({ description: 'The whole path. Bytes that are no UTF-8 show as U+FFFD.' }),
    path_encoded: Type.Optional(
      Type.String({ description: 'The exact path, percent-encoded. Only if it is not valid UTF-8.' }),
    ),
    name: Type.String({ description: 'The last part of the path.' }),
    type: OneOf(FILE_TYPES, { description: 'other: a device, a pipe or a socket.' }),
    size: Type.Integer({ description: 'Bytes.' }),
    mode: Type.String({ description: 'Permission bits, octal, such as 0644.' }),
    user: Type.String({ description: 'The name of the owner in the machine, or its number.' }),
    group: Type.String({ description: 'The name of the group in the machine, or its number.' }),
    modified_at: Timestamp(),
    target: Type.Optional(Type.String({ description: 'What a symlink names, as it is written in it.' })),
  },
  { title: 'FileEntry' },
);
export type FileEntry = Static<typeof FileEntry>;

export const FileList = Type.Object(
  {
    entries: Type.Array(FileEntry),
    next_cursor: Type.String({ description: 'The cursor of the next page; empty at the end.' }),
  },
  { title: 'FileList' },
);
export type FileList = Static<typeof FileList>;

/** A path in a query. Fastify sees it percent-encoded; see control-plane/src/files/query-path.ts. */
const QueryPath = Type.String({
  pattern: ABSOLUTE_PATH_PATTERN,
  description:
    'An absolute path. It is percent-decoded to bytes, so names that are not valid UTF-8 can be given. At most 4,096 bytes, ' +
    '255 in each name.',
});
const User = Type.String({
  minLength: 1,
  maxLength: 64,
  pattern: NO_NUL_PATTERN,
  description: 'The owner: a name or uid in the machine, with :group or :gid if wanted. Default: root.',
});
const Mode = Type.String({
  pattern: FILE_MODE_PATTERN,
  description: 'Permission bits, octal, such as 0644.',
});
const BodyPath = Type.String({ pattern: ABSOLUTE_PATH_PATTERN, maxLength: 4096, description: 'An absolute path.' });
const EncodedPath = Type.String({
  pattern: ABSOLUTE_PATH_PATTERN,
  maxLength: 3 * 4096,
  description: 'The path percent-encoded, for one that is not valid UTF-8.',
});

export const FileQuery = Type.Object({ path: QueryPath }, { additionalProperties: false });

export const FileListQuery = Type.Object(
  {
    path: QueryPath,
    depth: Type.Optional(
      Type.Integer({
        minimum: 1,
        maximum: FILE_BOUNDS.depthMax,
        default: 1,
        description: '1: what is in the directory. 2: also what is in its directories, and so on.',
      }),
    ),
    page_size: Type.Optional(Type.Integer({ minimum: 1, maximum: FILE_BOUNDS.pageMax, default: FILE_BOUNDS.pageMax })),
    cursor: Type.Optional(Type.String({ maxLength: 20_000, description: 'next_cursor of the page before.' })),
  },
  { additionalProperties: false },
);
export type FileListQuery = Static<typeof FileListQuery>;

export const FileWriteQuery = Type.Object(
  {
    path: QueryPath,
    mode: Type.Optional(Mode),
    user: Type.Optional(User),
    parents: Type.Optional(
      Type.Boolean({ default: true, description: 'Make the directories of the path that are missing.' }),
    ),
  },
  { additionalProperties: false },
);
export type FileWriteQuery = Static<typeof FileWriteQuery>;

export const FileRemoveQuery = Type.Object(
  {
    path: QueryPath,
    recursive: Type.Optional(
      Type.Boolean({ default: false, description: 'Delete a directory with everything in it.' }),
    ),
  },
  { additionalProperties: false },
);

export const FileUnpackQuery = Type.Object(
  { path: QueryPath, user: Type.Optional(User) },
  { additionalProperties: false },
);
export type FileUnpackQuery = Static<typeof FileUnpackQuery>;

export const FileWatchQuery = Type.Object(
  {
    path: QueryPath,
    recursive: Type.Optional(Type.Boolean({ default: true, description: 'Also what is below its directories.' })),
  },
  { additionalProperties: false },
);

export const DirectoryCreate = Type.Object(
  {
    path: Type.Optional(BodyPath),
    path_encoded: Type.Optional(EncodedPath),
    mode: Type.Optional(Mode),
    user: Type.Optional(User),
  },
  {
    title: 'DirectoryCreate',
    additionalProperties: false,
    oneOf: [{ required: ['path'] }, { required: ['path_encoded'] }],
  },
);
export type DirectoryCreate = Static<typeof DirectoryCreate>;

export const FileMove = Type.Object(
  {
    from: Type.Optional(BodyPath),
    from_encoded: Type.Optional(EncodedPath),
    to: Type.Optional(BodyPath),
    to_encoded: Type.Optional(EncodedPath),
    overwrite: Type.Optional(Type.Boolean({ default: false, description: 'Replace what is at the new path.' })),
  },
  {
    title: 'FileMove',
    additionalProperties: false,
    allOf: [
      { oneOf: [{ required: ['from'] }, { required: ['from_encoded'] }] },
      { oneOf: [{ required: ['to'] }, { required: ['to_encoded'] }] },
    ],
  },
);
export type FileMove = Static<typeof FileMove>;

/** The answer to an unpacked archive. */
export const FileUnpacked = Type.Object(
  {
    entries: Type.Integer({ description: 'How many entries were unpacked.' }),
    refused_count: Type.Integer({ description: 'How many entries were left out.' }),
    refused: Type.Array(Type.Object({ name: Type.String(), reason: Type.String() }), {
      description: `The first ${FILE_BOUNDS.refusedListed} of them, such as one that would leave the directory.`,
    }),
  },
  { title: 'FileUnpacked' },
);
export type FileUnpacked = Static<typeof FileUnpacked>;

export const FILE_EVENT_TYPES = ['ready', 'created', 'changed', 'removed', 'renamed', 'overflow'] as const;
/** An event of a watch. `ready` is the first. `overflow`: events were lost, so look at the files again. */
export const FileEvent = Type.Object(
  {
    type: OneOf(FILE_EVENT_TYPES),
    path: Type.Optional(Type.String()),
    path_encoded: Type.Optional(Type.String()),
    from: Type.Optional(Type.String({ description: 'Of `renamed`: the path before.' })),
    from_encoded: Type.Optional(Type.String()),
  },
  { title: 'FileEvent' },
);
export type FileEvent = Static<typeof FileEvent>;

// What a guest agent answers. Its paths are percent-encoded.

/** A list can show paths that are longer than those in requests: 64 names of 255 bytes below a path of 4,096. */
const GuestPath = Type.String({ minLength: 1, maxLength: 64 * 1024 });
const GuestName = Type.String({ maxLength: 256 });
const Size = Type.Integer({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER });
const Id = Type.Integer({ minimum: 0, maximum: 0xffff_ffff });

export const GuestEntry = Type.Object({
  path: GuestPath,
  type: OneOf(FILE_TYPES),
  size: Size,
  mode: Type.Integer({ minimum: 0, maximum: 0o7777 }),
  uid: Id,
  gid: Id,
  user: GuestName,
  group: GuestName,
  mtime_ns: Type.String({ maxLength: 20 }),
  target: Type.Optional(Type.String({ maxLength: 3 * 4096 })),
});
export type GuestEntry = Static<typeof GuestEntry>;

/** The entry of an open file. The path is missing when it is too long for the head or the result of a stream. */
export const GuestOpenEntry = Type.Object({ ...GuestEntry.properties, path: Type.Optional(GuestPath) });
export type GuestOpenEntry = Static<typeof GuestOpenEntry>;

export const GuestEntryPage = Type.Object({
  entries: Type.Array(GuestEntry, { maxItems: FILE_BOUNDS.pageMax }),
  more: Type.Boolean(),
});
export type GuestEntryPage = Static<typeof GuestEntryPage>;

export const GuestDirectory = Type.Object({ entry: GuestEntry, created: Type.Boolean() });

/** The head of `files.read`. `length` is null when the size of the file is unknown, as in /proc. */
export const GuestReadHead = Type.Object({
  entry: GuestOpenEntry,
  start: Size,
  length: Type.Union([Size, Type.Null()]),
  etag: Type.String({ minLength: 1, maxLength: 128 }),
});
export type GuestReadHead = Static<typeof GuestReadHead>;

/** The head of `files.write`. `if_etag` repeats the condition. An older guest, which ignores it, does not. */
export const GuestWriteHead = Type.Object({ if_etag: Type.Optional(Type.String({ maxLength: 128 })) });

export const GuestWritten = Type.Object({ entry: GuestOpenEntry });

export const GuestUnpacked = Type.Object({
  entries: Size,
  refused_count: Size,
  refused: Type.Array(
    Type.Object({ name: Type.String({ maxLength: 3 * 2 * 4096 }), reason: Type.String({ maxLength: 1024 }) }),
    { maxItems: FILE_BOUNDS.refusedListed },
  ),
});

export const GuestFileEvent = Type.Object({
  type: OneOf(FILE_EVENT_TYPES),
  path: Type.Optional(GuestPath),
  from: Type.Optional(GuestPath),
});
export type GuestFileEvent = Static<typeof GuestFileEvent>;

/** An answer without fields. Fields that a later guest agent adds are ignored. */
export const GuestNothing = Type.Object({});
