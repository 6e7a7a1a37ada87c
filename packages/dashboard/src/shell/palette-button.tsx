// Opens the command palette, also by Ctrl+K or Cmd+K anywhere on the page. The palette is loaded when it is first
// opened.
import { Suspense, useEffect, useState } from 'react';
import { lazyPart } from '../ui/lazy-part.ts';
import styles from './palette.module.css';

const Palette = lazyPart(() => import('./palette.tsx'), 'Palette');

const IS_APPLE = /Mac|iPhone|iPad/.test(navigator.platform);

/** Whether the key press asks for the palette. Ctrl+K on an Apple keyboard stays the terminal's "delete the line". */
const asksForPalette = (event: KeyboardEvent): boolean =>
  event.key.toLowerCase() === 'k' && (IS_APPLE ? event.metaKey : event.ctrlKey) && !event.altKey && !event.shiftKey;

/**
 * While one of these is open, the palette stays closed: leaving the page would lose a secret that is shown once, or the
 * answer to the form that is being sent.
 */
const MUST_STAY = '[role=alertdialog], [role=dialog] [aria-busy=true]';

export function PaletteButton() {
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!asksForPalette(event)) return;
      event.preventDefault();
      event.stopPropagation();
      if (document.querySelector(MUST_STAY)) return;
      setOpen((was) => !was);
    };
    // Capture, so that a terminal or an editor with the focus does not take the key first.
    document.addEventListener('keydown', press, { capture: true });
    return () => document.removeEventListener('keydown', press, { capture: true });
  }, []);
  return (
    <>
      <button
        type="button"
        className={styles.trigger}
        aria-haspopup="dialog"
        aria-keyshortcuts={IS_APPLE ? 'Meta+K' : 'Control+K'}
        onClick={() => setOpen(true)}
      >
        Search <kbd>{IS_APPLE ? '⌘K' : 'Ctrl K'}</kbd>
      </button>
      {isOpen ? (
        <Suspense fallback={null}>
          <Palette onClose={() => setOpen(false)} />
        </Suspense>
      ) : null}
    </>
  );
}
