// Copies a text to the clipboard. Browsers offer navigator.clipboard only over HTTPS and on localhost. On other pages
// the older command "copy" is used. When that is refused too, the text is selected for the person to copy.
import { useState } from 'react';
import styles from './copy.module.css';

/** Returns whether the browser copied the text. Call it in the event of a click, or soon after it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyByCommand(text);
  }
}

/** The command copies the selection, so this selects the text in an invisible field. */
function copyByCommand(text: string): boolean {
  const focused = document.activeElement;
  const field = document.createElement('textarea');
  field.className = styles.field ?? '';
  field.readOnly = true;
  field.value = text;
  // The field must be in the open dialog, because a dialog takes the focus back from everything outside of it.
  (focused?.closest('[role="dialog"], [role="alertdialog"]') ?? document.body).append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  if (focused instanceof HTMLElement) focused.focus({ preventScroll: true });
  return isCopied;
}

/** Selects all text of an element. */
export function selectText(element: HTMLElement | null): void {
  if (element !== null) getSelection()?.selectAllChildren(element);
}

export const COPY_REFUSED = 'The browser does not allow copying here. Copy the selected text yourself.';

/**
 * The state of a button that copies `text`. `outcome` is how the last copy ended, until `text` changes. `copy` selects
 * the text in `shown` when the browser refuses.
 */
export function useCopy(text: string) {
  const [last, setLast] = useState<{ text: string; outcome: 'copied' | 'refused' }>();
  const copy = async (shown: HTMLElement | null) => {
    const isCopied = await copyText(text);
    if (!isCopied) selectText(shown);
    setLast({ text, outcome: isCopied ? 'copied' : 'refused' });
  };
  return { outcome: last?.text === text ? last.outcome : undefined, copy };
}
