// Reads one page of a job's output.
import { api, type Schemas, unwrap } from '../../api/client.ts';
import type { JobId, StreamName } from './job-queries.ts';

/** `offset` and `limit` are in bytes. Throws ApiProblem. */
export async function readOutput(
  { machineId, execId }: JobId,
  query: { stream: StreamName; offset: number; limit: number },
  signal?: AbortSignal,
): Promise<Schemas['ExecOutput']> {
  const params = { path: { id: machineId, exec_id: execId }, query };
  const page = await unwrap(
    api.GET('/v1/machines/{id}/execs/{exec_id}/output', { params, ...(signal ? { signal } : {}) }),
  );
  // The same path also answers with events, as text, but only to a request that accepts them.
  return page as Schemas['ExecOutput'];
}

/** The bytes of a page's `data`. */
export const decodeBase64 = (text: string): Uint8Array<ArrayBuffer> =>
  Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
