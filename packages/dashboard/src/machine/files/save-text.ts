// Saves an edited text, unless the file has changed since the person began to edit.
import { ApiProblem } from '../../api/client.ts';
import { presentEtag } from './read-content.ts';
import { sendFile } from './send-file.ts';

/** A version of a file by its ETag; undefined: the file does not exist. */
export type Version = string | undefined;
/** `other`: nothing was written, because the file now has the version `present`. */
export type Outcome = { kind: 'saved' } | { kind: 'other'; present: Version };

/** Replaces the version `known`. The machine compares the versions right before it replaces the file. */
export async function saveText(url: string, content: Blob, known: Version): Promise<Outcome> {
  try {
    await sendFile(url, content, known === undefined ? { isExclusive: true } : { ifMatch: known });
    return { kind: 'saved' };
  } catch (error) {
    if (!(error instanceof ApiProblem) || error.status !== 409) throw error;
    const present = await presentEtag(url);
    // The 409 has another reason, such as a stopped machine.
    if (present === known) throw error;
    return { kind: 'other', present };
  }
}
