// What a person has typed into the editor of a file, compared with the version of the file that was read last.
import type { TextContent } from './read-content.ts';

/**
 * `base`: the version of the file that the person began with. `saved`: the text that was saved since. After a save the
 * new ETag is known only once the file was read again.
 */
export type Draft = { lines: string; base: TextContent; saved?: string };

export const isUnsaved = (draft: Draft | undefined): boolean => draft !== undefined && draft.lines !== draft.saved;

/** Whether the draft was saved, but the file was not read again since. */
export const isUnread = ({ base, saved }: Draft, content: TextContent): boolean =>
  saved !== undefined && base.etag === content.etag;

/**
 * The draft after `content` was read. A draft that was saved whole is dropped. A draft that was changed during the save
 * is based on the saved version, unless the file has another text by then.
 */
export function draftAfterRead(draft: Draft | undefined, content: TextContent): Draft | undefined {
  if (draft?.saved === undefined || isUnread(draft, content)) return draft;
  const { lines, base, saved } = draft;
  if (lines === saved) return undefined;
  return { lines, base: content.lines === saved ? content : base };
}
