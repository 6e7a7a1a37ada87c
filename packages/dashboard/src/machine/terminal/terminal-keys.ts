// Keyboard shortcuts that the page handles before the shell gets the key, and a filter for pasted text.
import type { Terminal } from '@xterm/xterm';

/**
 * Ctrl+C copies when text is selected, and interrupts otherwise. Ctrl+V and Ctrl+Shift+V paste. Alt+Shift+Up leaves the
 * terminal, because Tab belongs to the shell.
 */
export function addShortcuts(terminal: Terminal, onLeave: () => void): void {
  terminal.attachCustomKeyEventHandler((event) => {
    const { ctrlKey, altKey, shiftKey, metaKey } = event;
    if (altKey && shiftKey && !ctrlKey && !metaKey && event.key === 'ArrowUp') {
      event.preventDefault();
      if (event.type === 'keydown') onLeave();
      return false;
    }
    if (!ctrlKey || altKey || metaKey) return true;
    const key = event.key.toLowerCase();
    // The browser then pastes, and xterm uses bracketed paste if the shell turned it on.
    if (key === 'v') return false;
    if (key !== 'c' || !(terminal.hasSelection() || shiftKey)) return true;
    event.preventDefault();
    if (event.type === 'keydown' && terminal.hasSelection()) {
      // Unlike navigator.clipboard, this works on a page without TLS too. xterm answers the event with its selection.
      document.execCommand('copy');
      terminal.clearSelection();
    }
    return false;
  });
}

/**
 * Removes escape characters from pasted text. Otherwise a text could end the bracketed paste early, and its next line
 * would run as a command. Returns a function that removes the filter.
 */
export function cleanPastes(terminal: Terminal, element: HTMLElement): () => void {
  const clean = (event: ClipboardEvent) => {
    const text = event.clipboardData?.getData('text/plain') ?? '';
    if (!text.includes('\x1b')) return;
    event.preventDefault();
    event.stopPropagation();
    terminal.paste(text.replaceAll('\x1b', ''));
  };
  element.addEventListener('paste', clean, { capture: true });
  return () => element.removeEventListener('paste', clean, { capture: true });
}
