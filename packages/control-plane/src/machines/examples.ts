// The example machine in the OpenAPI document.
import type { Machine } from '@sandbar/contract/machine.ts';

export function exampleMachine(changes: Partial<Machine> = {}): Machine {
  return {
    id: '019b7c1e-5f6a-7b3c-9d2e-4a1f0c8e7b65',
    account_id: '019b7c1a-0d4e-7c11-8f5a-2b6c9e0d1a34',
    name: 'build-1',
    state: 'running',
    vcpus: 2,
    memory_mb: 2048,
    rootfs_size_gb: 10,
    stack: 'base',
    private_ip: '10.83.0.4',
    metadata: {},
    snapshot_id: null,
    root_volume_id: null,
    isolation: 'kvm',
    error: null,
    operation: null,
    expires_at: null,
    on_expiry: 'destroy',
    created_at: '2026-01-02T03:04:05.006Z',
    started_at: '2026-01-02T03:04:05.906Z',
    stopped_at: null,
    destroyed_at: null,
    ...changes,
  };
}
