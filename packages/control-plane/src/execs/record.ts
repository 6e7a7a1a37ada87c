// Converts a job's row into the JSON object that clients get. For a running job, the byte counts come from the host's
// report.
import type { Exec } from '@sandbar/contract/exec.ts';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import type { ExecRow } from '../db/tables.ts';
import { timestamp } from '../machines/record.ts';

/**
 * Returns the job's JSON object. `timeoutSec` is passed only in the answer to the start of the job; in all other
 * answers `timeout_sec` is null. `report` supplies the byte counts of a running job.
 */
export function toExec(row: ExecRow, options: { timeoutSec?: number; report?: JobReport | undefined } = {}): Exec {
  const counts = row.status === 'running' && options.report ? options.report : row;
  return {
    id: row.id,
    machine_id: row.machine_id,
    name: row.name,
    status: row.status,
    exit_code: row.exit_code,
    signal: row.signal,
    timeout_sec: options.timeoutSec ?? null,
    stdout_bytes: counts.stdout_bytes,
    stderr_bytes: counts.stderr_bytes,
    truncated: counts.truncated,
    output_expired: row.output_expired,
    created_at: row.created_at.toISOString(),
    finished_at: timestamp(row.finished_at),
  };
}
