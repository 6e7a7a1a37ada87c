// Two programs that run in a machine. The writer writes numbered blocks with checksums to the root disk and to a
// volume, and prints the number of a block only after both copies are synced. The reader checks that all printed blocks
// exist.
import type { Client } from '@sandbar/sdk/client.ts';

/** Bytes of a block: its number (8), random data, and the SHA-256 of both (32). */
const BLOCK = 4096;

const WRITER = `
import hashlib, os, struct, sys
files = [os.open(path, os.O_WRONLY | os.O_CREAT, 0o600) for path in sys.argv[2:]]
for path in sys.argv[2:]:
    folder = os.open(os.path.dirname(path), os.O_RDONLY)
    os.fsync(folder)
number = int(sys.argv[1])
while True:
    body = struct.pack('<Q', number) + os.urandom(${BLOCK} - 40)
    block = body + hashlib.sha256(body).digest()
    for file in files:
        os.pwrite(file, block, number * ${BLOCK})
        os.fsync(file)
    print(number, flush=True)
    number += 1
`;

/**
 * Arguments: FIRST END PATH... Checks the blocks FIRST to END - 1 of each file. Prints the path and the number of the
 * first block that is missing or damaged, or `all` when none is.
 */
const READER = `
import hashlib, struct, sys
first, end = int(sys.argv[1]), int(sys.argv[2])
for path in sys.argv[3:]:
    with open(path, 'rb') as file:
        file.seek(first * ${BLOCK})
        for number in range(first, end):
            block = file.read(${BLOCK})
            if len(block) < ${BLOCK} or struct.unpack('<Q', block[:8])[0] != number or hashlib.sha256(block[:-32]).digest() != block[-32:]:
                print(path, number)
                sys.exit(0)
print('all')
`;

export type Writer = { machineId: string; jobId: string; from: number };

/** Starts the writer in a machine. It writes each block, from number `from` on, to all `paths`. */
export async function startWriter(
  sandbar: Client,
  machineId: string,
  from: number,
  paths: readonly string[],
): Promise<Writer> {
  const argv = ['python3', '-c', WRITER, String(from), ...paths];
  return { machineId, jobId: (await sandbar.execs.start(machineId, { argv })).id, from };
}

/** Returns the number after the last block that the writer printed, so all blocks below are synced. */
export async function countSynced(sandbar: Client, { machineId, jobId, from }: Writer): Promise<number> {
  let text = '';
  for (let offset = 0, eof = false; !eof; ) {
    const page = await sandbar.execs.output(machineId, jobId, { offset, limit: 1024 * 1024 });
    text += Buffer.from(page.data, 'base64').toString();
    eof = page.eof || page.next_offset === offset;
    offset = page.next_offset;
  }
  const said = text.slice(0, text.lastIndexOf('\n') + 1);
  return from + said.split('\n').length - 1;
}

/**
 * Reads the blocks `first` to `end - 1` of `paths`. Returns a sentence about the first bad one, or undefined for none.
 */
export async function findLoss(
  sandbar: Client,
  machineId: string,
  { first, end }: { first: number; end: number },
  paths: readonly string[],
): Promise<string | undefined> {
  const argv = ['python3', '-c', READER, String(first), String(end), ...paths];
  const job = await sandbar.execs.start(machineId, { argv });
  const ended = await sandbar.execs.wait(machineId, job.id);
  const page = await sandbar.execs.output(machineId, job.id);
  const said = Buffer.from(page.data, 'base64').toString().trim();
  if (ended.exit_code === 0 && said === 'all') return undefined;
  return `of blocks ${first} to ${end - 1}: ${said || `the reader ended as ${ended.status} with ${ended.exit_code}`}`;
}
