// The columns of a job's row, for prepared statements.

/** By name: a column that a newer replica adds must not break what is prepared. */
export const EXEC_COLUMNS = `machine_id, id, account_id, status, exit_code, signal, timeout_sec, stdout_bytes, stderr_bytes,
  truncated, created_at, finished_at`;
