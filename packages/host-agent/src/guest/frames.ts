// Parses the output stream of a job that a guest sends. A frame is a 16-byte header (type, three zero bytes, payload
// length, absolute offset) and the payload. Output bytes are passed on as they arrive, before their frame is complete.
// Each output frame carries at least one byte, and its offset is where the previous frame of the same stream ended. So
// a guest cannot repeat output or send empty frames, and every frame uses up some of the job's output limit.
import type { OutputStream } from '@sandbar/contract/exec.ts';
import type { JobFrame, StreamOffsets } from './guest.ts';
import { parseGuestJob } from './guest-job.ts';
import { GuestProtocolError } from './guest-protocol-error.ts';

const HEADER_BYTES = 16;
const STREAMS: Readonly<Record<number, OutputStream>> = { 1: 'stdout', 2: 'stderr' };
const TYPE_END = 3;
/** Limits of the payload in bytes. A guest that follows the protocol sends smaller frames. */
const MAX_OUTPUT_PAYLOAD = 1024 * 1024;
const MAX_END_PAYLOAD = 4 * 1024;
const NOTHING = Buffer.alloc(0);

type Header = { stream: OutputStream | undefined; length: number };

/** The parser of one stream. It ends at the first error: do not call `push` again after it has thrown. */
export class FrameParser {
  /** How many frames have begun so far. The work budget charges for each frame (work-budget.ts). */
  frames = 0;
  readonly #next: StreamOffsets;
  /** The bytes of an incomplete header or end frame, until the rest arrives. */
  #pending: Buffer = NOTHING;
  #header: Header | undefined;

  /** `from`: the offsets at which the stream was asked to begin. */
  constructor(from: StreamOffsets) {
    this.#next = { ...from };
  }

  /**
   * Takes the next bytes of the stream and returns what they contain. All output of one stream in one chunk is joined
   * to one item. If the bytes contain the job's end, that is the last item. Throws {@link GuestProtocolError}.
   */
  push(chunk: Buffer): JobFrame[] {
    const bytes = this.#pending.length === 0 ? chunk : Buffer.concat([this.#pending, chunk]);
    const output = new JoinedOutput();
    let at = 0;
    for (;;) {
      if (!this.#header) {
        if (bytes.length - at < HEADER_BYTES) break;
        this.#header = this.#readHeader(bytes, at);
        at += HEADER_BYTES;
      }
      const { stream, length } = this.#header;
      const there = Math.min(length, bytes.length - at);
      if (stream === undefined) {
        if (there < length) break;
        return [...output.frames(), { type: 'end', job: parseEnd(bytes.toString('utf8', at, at + length)) }];
      }
      if (there === 0) break;
      output.add(stream, this.#next[stream], bytes.subarray(at, at + there));
      at += there;
      this.#next[stream] += there;
      this.#header = there === length ? undefined : { stream, length: length - there };
    }
    this.#pending = at === bytes.length ? NOTHING : bytes.subarray(at);
    return output.frames();
  }

  #readHeader(bytes: Buffer, at: number): Header {
    this.frames++;
    const type = bytes.readUInt8(at);
    const zeros = bytes.readUIntBE(at + 1, 3);
    const length = bytes.readUInt32BE(at + 4);
    const offset = bytes.readBigUInt64BE(at + 8);
    const stream = STREAMS[type];
    const isAllowed = stream
      ? length > 0 && length <= MAX_OUTPUT_PAYLOAD && offset === BigInt(this.#next[stream])
      : type === TYPE_END && length <= MAX_END_PAYLOAD;
    if (isAllowed && zeros === 0) return { stream, length };
    throw new GuestProtocolError(`a frame of type ${type} with ${length} bytes at offset ${offset} is not allowed`);
  }
}

/** Joins the pieces of output of each stream, so that many small frames in one chunk cause few writes. */
class JoinedOutput {
  readonly #runs = new Map<OutputStream, { offset: number; pieces: Buffer[] }>();

  add(stream: OutputStream, offset: number, bytes: Buffer): void {
    const run = this.#runs.get(stream) ?? { offset, pieces: [] };
    run.pieces.push(bytes);
    this.#runs.set(stream, run);
  }

  frames(): JobFrame[] {
    return [...this.#runs].map(
      ([
        stream,
        {
          offset,
          pieces: [first = NOTHING, ...rest],
        },
      ]) => {
        const bytes = rest.length === 0 ? first : Buffer.concat([first, ...rest]);
        return { type: 'output', stream, offset, bytes };
      },
    );
  }
}

/**
 * Reads frames from the chunks of a response body, up to the end frame. `from`: the offsets at which the stream was
 * asked to begin. `onWork` gets the number of frames and bytes of each chunk, and may make the reader wait. Throws
 * {@link GuestProtocolError} for a malformed frame, and `Error` when the body ends without an end frame.
 */
export async function* readFrames(
  chunks: AsyncIterable<Buffer>,
  from: StreamOffsets,
  onWork: (frames: number, bytes: number) => Promise<void> | undefined = () => undefined,
): AsyncGenerator<JobFrame> {
  const parser = new FrameParser(from);
  for await (const chunk of chunks) {
    const before = parser.frames;
    for (const frame of parser.push(chunk)) {
      yield frame;
      if (frame.type === 'end') return;
    }
    await onWork(parser.frames - before, chunk.length);
  }
  throw new Error('the stream of the job broke off');
}

function parseEnd(text: string) {
  try {
    return parseGuestJob(JSON.parse(text));
  } catch (error) {
    if (error instanceof GuestProtocolError) throw error;
    throw new GuestProtocolError('the guest described a job with a text that is not JSON');
  }
}
