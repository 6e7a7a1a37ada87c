// Uploads a file, and checks what the service says about it. The bytes are checked later, with the rest of the disk.
import { createHash, randomBytes } from 'node:crypto';
import type { FileEntry } from '@sandbar/contract/file.ts';
import { ask, type ClientContext, contradict } from '../client-context.ts';
import { ROOT_FOLDER } from '../content.ts';
import type { Machine } from '../model.ts';

const LARGEST_BYTES = 2 * 1024 * 1024;

/** Uploads a file of a random size to the root disk of a running machine. */
export async function uploadFile(context: ClientContext, machine: Machine): Promise<void> {
  const { disk } = machine;
  const name = `${context.who}-${context.nextNumber()}`;
  const bytes = randomBytes(context.random.integer(0, LARGEST_BYTES));
  disk.doubtful.add(name);
  const query = `path=${encodeURIComponent(`${ROOT_FOLDER}/${name}`)}`;
  const path = `/v1/machines/${machine.id}/files/content?${query}`;
  const { body } = await ask<FileEntry>(context, { method: 'PUT', path, bytes, accepts: [200], machine });
  // The service has answered, so the file is on the machine's disk, whatever ends the machine.
  disk.doubtful.delete(name);
  disk.certain.set(name, createHash('sha256').update(bytes).digest('hex'));
  context.journal.act(context.who, 'upload', `${name} of ${bytes.length} bytes to ${machine.id}`);
  if (body.size !== bytes.length) contradict(context, `the upload ${name} answered ${JSON.stringify(body)}`);
}
