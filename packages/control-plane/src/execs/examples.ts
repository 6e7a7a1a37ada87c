// The example job in the OpenAPI document.
import type { Exec } from '@sandbar/contract/exec.ts';

export function exampleExec(changes: Partial<Exec> = {}): Exec {
  return {
    id: '019b7c20-1a2b-7c3d-8e4f-5a6b7c8d9e0f',
    machine_id: '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65',
    name: '',
    status: 'exited',
    exit_code: 0,
    signal: null,
    timeout_sec: null,
    stdout_bytes: 6,
    stderr_bytes: 0,
    truncated: false,
    output_expired: false,
    created_at: '2026-01-02T03:05:00.000Z',
    finished_at: '2026-01-02T03:05:00.021Z',
    ...changes,
  };
}

export const exampleRunning = (): Exec =>
  exampleExec({ status: 'running', exit_code: null, timeout_sec: 3600, stdout_bytes: 0, finished_at: null });
