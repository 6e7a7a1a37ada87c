// A program in a machine that writes numbered, checksummed blocks to its root disk and to a volume, and says a number only
// when both are synced; and one that reads them back. What was said must be there, whatever died meanwhile.
import type { Sandbar } from '@sandbar/sdk/client.ts';

/** Bytes of a block: number, filling, SHA-256 of both. */
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

/** Prints the first number that is missing or damaged, of those from the first to before the second given one, or "all". */
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

/** Begins to write blocks from number `from` on, each to all `paths`. */
export async function startWriter(
  sandbar: Sandbar,
  machineId: string,
  from: number,
  paths: readonly string[],
): Promise<Writer> {
  const argv = ['python3', '-c', WRITER, String(from), ...paths];
  return { machineId, jobId: (await sandbar.execs.start(machineId, { argv })).id, from };
}

/** How many blocks are known to be synced: the number after the last one that was said. */
export async function countSynced(sandbar: Sandbar, { machineId, jobId, from }: Writer): Promise<number> {
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

/** What is wrong with the blocks of `paths`, from number `first` to before `end`; undefined when they are as they were written. */
export async function findLoss(
  sandbar: Sandbar,
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
