// Arguments that several tools share.
import { z } from 'zod';

const id = z.string().regex(/^[0-9a-f-]{36}$/, 'must be an id (UUID), not a name');

export const machineId = id;
export const jobId = id;
export const snapshotId = id;

/** By default, one call returns at most this many bytes of text. */
export const MAX_BYTES_DEFAULT = 20_000;
/** The caller can ask for at most this many bytes. They fit into one page of the API. */
export const MAX_BYTES_LIMIT = 1_000_000;

export const maxBytes = z
  .int()
  .min(100)
  .max(MAX_BYTES_LIMIT)
  .default(MAX_BYTES_DEFAULT)
  .describe('Most bytes to return.');

/**
 * The maximum, 1 TB, is larger than any file or output. It makes the schema that agents read shorter: without it, the
 * schema would have the maximum 9007199254740991.
 */
export const offset = z.int().min(0).max(1e12).default(0).describe('First byte to return.');

export const absolutePath = z
  .string()
  .regex(/^\//, 'must be an absolute path, such as /root/app')
  .describe('Absolute path');

export const environment = z.record(z.string(), z.string()).describe('Environment variables.');
