// Field types that several resources share, so that each has one definition, one description and one bound.
import { type TSchema, Type } from 'typebox';
import { ENV_NAME_PATTERN, NO_NUL_PATTERN } from './patterns.ts';

/** A UUID in lower case; version 7 where the service makes it, so that ids sort by time. */
export const Uuid = (description?: string) =>
  Type.String({ format: 'uuid', ...(description === undefined ? {} : { description }) });

/** RFC 3339, UTC, milliseconds, `Z`. */
export const Timestamp = (description?: string) =>
  Type.String({ format: 'date-time', ...(description === undefined ? {} : { description }) });

/** A field that is always there and may be null. */
export const Nullable = <T extends TSchema>(schema: T) => Type.Union([schema, Type.Null()]);

/** A string from a fixed list, written as a JSON Schema `enum`, which validators quote well. */
export const OneOf = <const T extends readonly string[]>(
  values: T,
  options: { description?: string; default?: T[number] } = {},
) => Type.Unsafe<T[number]>({ type: 'string', enum: [...values], ...options });

/** Environment variables by name. */
export const Environment = (description: string) =>
  Type.Unsafe<Record<string, string>>({
    type: 'object',
    maxProperties: 1024,
    propertyNames: { pattern: ENV_NAME_PATTERN },
    additionalProperties: { type: 'string', pattern: NO_NUL_PATTERN },
    description,
  });

/** The paging parameters that every list takes. Without `page_size` a list is complete. */
export const PagingQuery = {
  page_size: Type.Optional(Type.Integer({ minimum: 1, maximum: 200, description: 'Pages the list; newest first.' })),
  cursor: Type.Optional(Type.String({ maxLength: 1024, description: 'next_cursor of the page before.' })),
};

/** Present when the request paged: the cursor of the next page, empty at the end. */
export const NextCursor = Type.Optional(
  Type.String({ description: 'Present when page_size was given; empty at the end.' }),
);

/** An answer without a body. */
export const NoContent = Type.Unsafe<undefined>({ type: 'null', description: 'Done.' });

/** Body of every error. */
export const ErrorBody = Type.Object(
  { detail: Type.String(), code: Type.String() },
  { title: 'Error', description: 'Body of every error.' },
);
