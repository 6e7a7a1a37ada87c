// Types of fields that several resources share, so that each type is defined, described and bounded in one place.
import { type TSchema, Type } from 'typebox';
import { ENV_NAME_PATTERN, IDEMPOTENCY_KEY_PATTERN, NO_NUL_PATTERN } from './patterns.ts';

/** A UUID in lower case. The service makes version 7, so that ids sort by the time of their creation. */
export const Uuid = (description?: string) =>
  Type.String({ format: 'uuid', ...(description === undefined ? {} : { description }) });

/** A time as in RFC 3339, in UTC with milliseconds and `Z`, such as 2026-01-02T03:04:05.006Z. */
export const Timestamp = (description?: string) =>
  Type.String({ format: 'date-time', ...(description === undefined ? {} : { description }) });

/** A field that is always there and may be null. */
export const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** A string from a fixed list, as the JSON Schema keyword `enum`, so that a refusal can name the whole list. */
export const OneOf = <const T extends readonly string[]>(
  values: T,
  options: { description?: string; default?: T[number] } = {},
) => Type.Unsafe<T[number]>({ type: 'string', enum: [...values], ...options });

/** Environment variables by name. */
export const Environment = (description: string) =>
  Type.Unsafe<Record<string, string>>({
    type: 'object',
    maxProperties: 1024,
    propertyNames: { pattern: ENV_NAME_PATTERN, description: 'not empty and hold no "="' },
    additionalProperties: { type: 'string', pattern: NO_NUL_PATTERN },
    description,
  });

/** The paging parameters of every list. Without `page_size` the answer is the whole list. */
export const PagingQuery = {
  page_size: Type.Optional(Type.Integer({ minimum: 1, maximum: 200, description: 'Pages the list; newest first.' })),
  cursor: Type.Optional(Type.String({ maxLength: 1024, description: 'next_cursor of the page before.' })),
};

/** The cursor of the next page, empty on the last one. Absent when the request did not ask for pages. */
export const NextCursor = Type.Optional(
  Type.String({ description: 'Present when page_size was given; empty at the end.' }),
);

/** The headers of a request that creates a machine, a volume or a snapshot. */
export const CreateHeaders = Type.Object({
  'idempotency-key': Type.Optional(
    Type.String({
      pattern: IDEMPOTENCY_KEY_PATTERN,
      description:
        '1 to 255 printable characters, unique per account; kept for 24 hours. A retry with it makes no duplicate.',
    }),
  ),
});

/** An answer without a body. */
export const NoContent = Type.Unsafe<undefined>({ type: 'null', description: 'Done.' });

/** Body of every error. */
export const ErrorBody = Type.Object(
  { detail: Type.String(), code: Type.String() },
  { title: 'Error', description: 'Body of every error.' },
);
