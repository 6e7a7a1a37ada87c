// The job as clients see it, made from its row and, while it runs, from what its host says of it.
import type { Exec } from '@sandbar/contract/exec.ts';
import type { JobReport } from '@sandbar/contract/host-api.ts';
import type { ExecRow } from '../db/tables.ts';
import { timestamp } from '../machines/record.ts';

/** `timeout_sec` is real in the start response only. A report adds the byte counts of a running job. */
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
    created_at: row.created_at.toISOString(),
    finished_at: timestamp(row.finished_at),
  };
}
