// A part of a job's output as text, and the sentence that says how to read on.
import type { ExecOutput, OutputStream } from '@sandbar/contract/exec.ts';
import { fromBase64, toText } from '@sandbar/sdk/bytes.ts';
import { completeLength, continuationBytes } from './text-part.ts';

export type OutputPart = {
  text: string;
  /** Where the first byte of `text` is in the stream. */
  offset: number;
  /** Where to read on; null at the end of the output of an ended job. */
  nextOffset: number | null;
  /** Bytes of the stream so far. */
  totalBytes: number;
};

/** The part for a stream to which an ended job wrote nothing. */
export const NO_OUTPUT: OutputPart = { text: '', offset: 0, nextOffset: null, totalBytes: 0 };

/**
 * The first `maxBytes` of a page as text, which begins and ends with a complete character. Bytes that are not UTF-8
 * become U+FFFD.
 */
export function toOutputPart(page: ExecOutput, maxBytes: number): OutputPart {
  const all = fromBase64(page.data);
  const bytes = all.subarray(0, maxBytes);
  const isEnd = page.eof && bytes.length === all.length;
  const start = page.offset === 0 ? 0 : continuationBytes(bytes);
  const end = isEnd ? bytes.length : Math.max(start, completeLength(bytes));
  return {
    text: toText(bytes.subarray(start, end)),
    offset: page.offset + start,
    nextOffset: isEnd ? null : page.offset + end,
    totalBytes: page.total_bytes,
  };
}

/** Says that a part is not the whole output, and how to read on; empty when nothing is missing. */
export function readOnHint(
  { nextOffset, totalBytes }: OutputPart,
  job: { machineId: string; jobId: string; stream: OutputStream },
): string {
  if (nextOffset === null) return '';
  const where = `machine_id ${job.machineId}, job_id ${job.jobId}, stream ${job.stream}, offset ${nextOffset}`;
  return `[${job.stream} is cut at byte ${nextOffset} of ${totalBytes}. Read on with exec_output: ${where}.]`;
}
