// Turns a failed call into a result that an agent can act on: the code, the reason, and what to do next.
import type { CallToolResult } from '@modelcontextprotocol/server';
import type { ErrorCode } from '@sandbar/contract/errors.ts';
import { ConnectionError, FileChangedError, JobLostError, TimeoutError } from '@sandbar/sdk/errors.ts';
import { SandbarError } from '@sandbar/sdk/service-errors.ts';

/** A failure that the tool itself detects. It has an error code like the errors of the service. */
export class ToolError extends Error {
  readonly code: string;
  readonly advice: string;

  constructor(code: string, message: string, advice: string) {
    super(message);
    this.code = code;
    this.advice = advice;
  }
}

/** The `_meta` of a result has the machine-readable form of its error under this key. */
export const ERROR_META_KEY = 'sandbar/error';

type Failure = {
  code: string;
  detail: string;
  advice: string;
  status?: number;
  request_id?: string | null;
  retry_after_sec?: number | null;
};

const RETRY = 'Try again in a minute.';
const ADVICE: Partial<Record<ErrorCode, string>> = {
  validation_error: 'Correct the argument and call the tool again.',
  unauthenticated: 'The API key is wrong, expired or revoked. Ask the user for a valid key (SANDBAR_API_KEY).',
  insufficient_balance: 'Ask the user to top up the account. Machines that run keep running for now.',
  forbidden: 'A retry does not help. The key may be read-only: ask the user for a key with full access.',
  quota_exceeded: 'Ask for less, or delete machines and snapshots that are no longer needed (machine_list).',
  not_found: 'Check the id or the path. machine_list, snapshot_list and file_list show what exists.',
  conflict: 'Look at the state with machine_get. machine_start starts a stopped machine.',
  output_expired: 'The output cannot be read any more. Run the command again and write its output to a file.',
  payload_too_large: 'Send less at once.',
  range_not_satisfiable: 'The offset is behind the end of the file. Begin again at a smaller offset.',
  rate_limited: RETRY,
  internal_error: 'Try once more. If it fails again, tell the user the request id.',
  disk_full: 'Delete files in the machine, or create a machine with a larger rootfs_size_gb.',
  fleet_capacity: 'The service has no room now. Try again later or ask for a smaller machine.',
  host_unavailable: RETRY,
  shutting_down: RETRY,
  database_unavailable: RETRY,
};

/** Returns a result with `isError` for any error. */
export function toErrorResult(error: unknown): CallToolResult {
  const failure = toFailure(error);
  const { code, detail, advice, request_id } = failure;
  const id = request_id ? ` (request ${request_id})` : '';
  const text = `Error ${code}: ${detail}${id}${advice === '' ? '' : `\nWhat to do: ${advice}`}`;
  return { isError: true, content: [{ type: 'text', text }], _meta: { [ERROR_META_KEY]: failure } };
}

function toFailure(error: unknown): Failure {
  if (error instanceof SandbarError) {
    const { code, detail, status, requestId, retryAfterSec } = error;
    return { code, detail, advice: adviceOf(error), status, request_id: requestId, retry_after_sec: retryAfterSec };
  }
  if (error instanceof ToolError) return { code: error.code, detail: error.message, advice: error.advice };
  if (error instanceof JobLostError) {
    const advice = 'Look at the machine with machine_get. exec_output reads what the job wrote before.';
    return { code: 'job_lost', detail: error.message, advice };
  }
  if (error instanceof FileChangedError) {
    return { code: 'file_changed', detail: error.message, advice: 'Read the file again.' };
  }
  if (error instanceof ConnectionError) {
    const code = error instanceof TimeoutError ? 'timeout' : 'connection_error';
    const advice = 'The call may have been carried out. Look with machine_list or machine_get, then try again.';
    return { code, detail: error.message, advice };
  }
  const detail = error instanceof Error ? error.message : String(error);
  return { code: 'unexpected_error', detail, advice: '' };
}

function adviceOf({ code, retryAfterSec }: SandbarError): string {
  if (retryAfterSec !== null) return `Try again in ${retryAfterSec} s.`;
  return (ADVICE as Record<string, string>)[code] ?? '';
}
