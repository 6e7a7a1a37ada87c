// The example file in the OpenAPI document.
import type { FileEntry } from '@sandbar/contract/file.ts';

export function exampleEntry(changes: Partial<FileEntry> = {}): FileEntry {
  return {
    path: '/root/hello.txt',
    name: 'hello.txt',
    type: 'file',
    size: 6,
    mode: '0644',
    user: 'root',
    group: 'root',
    modified_at: '2026-01-02T03:05:00.000Z',
    ...changes,
  };
}
