// API keys: the record, which can be read at any time, and the key itself, which is shown once, when it is made.
import { type Static, Type } from 'typebox';
import { NextCursor, Nullable, OneOf, PagingQuery, Timestamp, Uuid } from './fields.ts';

export const KEY_SCOPES = ['read', 'full'] as const;
export type KeyScope = (typeof KEY_SCOPES)[number];

/** The most keys that an account can have. */
export const API_KEYS_MAX = 100;

const record = {
  id: Uuid(),
  name: Type.String(),
  scope: OneOf(KEY_SCOPES, { description: 'read: GET only. full: everything but API keys and sessions.' }),
  prefix: Type.String({ description: 'The first 12 characters of the key, to tell it by.' }),
  created_at: Timestamp(),
  last_used_at: Nullable(Timestamp('To the minute; null: never used.')),
  expires_at: Nullable(Timestamp('From then on it is refused; null: never.')),
};

export const ApiKey = Type.Object(record, { title: 'ApiKey' });
export type ApiKey = Static<typeof ApiKey>;

export const NewApiKey = Type.Object(
  { ...record, key: Type.String({ description: 'The key: in this answer and never again.' }) },
  { title: 'NewApiKey' },
);
export type NewApiKey = Static<typeof NewApiKey>;

export const ApiKeyList = Type.Object(
  { api_keys: Type.Array(ApiKey), next_cursor: NextCursor },
  { title: 'ApiKeyList' },
);
export type ApiKeyList = Static<typeof ApiKeyList>;

export const ApiKeyListQuery = Type.Object({ ...PagingQuery }, { additionalProperties: false });
export type ApiKeyListQuery = Static<typeof ApiKeyListQuery>;

export const ApiKeyCreate = Type.Object(
  {
    name: Type.String({ minLength: 1, maxLength: 255 }),
    scope: OneOf(KEY_SCOPES),
    expires_at: Type.Optional(
      Type.String({ format: 'date-time', maxLength: 64, description: 'RFC 3339, in the future. Default: never.' }),
    ),
  },
  { title: 'ApiKeyCreate', additionalProperties: false },
);
export type ApiKeyCreate = Static<typeof ApiKeyCreate>;

export const ApiKeyParams = Type.Object({ id: Uuid() });
