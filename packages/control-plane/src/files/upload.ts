// Copies the body of a request into a machine's stream. The client also gets an answer when the machine refuses the
// rest of the body, for example because its disk is full.
import type { Readable } from 'node:stream';
import { badAnswer } from '../guest/answer.ts';
import type { MachineStream } from '../guest/stream.ts';

/**
 * Sends all of `body` and returns the result of the stream. If the body breaks off, the stream is cut, so that the
 * machine keeps nothing of it. Throws the refusal of the machine.
 */
export async function upload(body: Readable, { duplex, result }: MachineStream): Promise<unknown> {
  const onClose = () => {
    if (!body.readableEnded) duplex.destroy(new Error('the client broke off an upload'));
  };
  body.once('close', onClose);
  duplex.on('data', () => duplex.destroy(badAnswer('bytes into an upload')));
  body.pipe(duplex);
  try {
    const answer = await result;
    if (!body.readableEnded) throw badAnswer('the result of an upload before the end of the upload');
    return answer;
  } finally {
    body.off('close', onClose);
    body.unpipe(duplex);
    // After a refusal, drop the rest. The connection stays, for the answer.
    body.destroy();
  }
}
