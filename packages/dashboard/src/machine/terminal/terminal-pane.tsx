// One terminal on the screen, with a line above it that says when it is not connected and what can be done.
import { useCallback, useEffect, useSyncExternalStore } from 'react';
import { Button } from '../../ui/button.tsx';
import type { LiveTerminal } from './live-terminal.ts';
import styles from './terminal.module.css';
import type { LinkState } from './terminal-link.ts';

type Props = {
  terminal: LiveTerminal;
  /** Whether this is the terminal on the screen. The others are kept in the document, but hidden. */
  isShown: boolean;
  /** Why no terminal can be opened now; undefined when one can. */
  reason: string | undefined;
  /** The element that gets the focus when the person leaves the terminal by keyboard. */
  tabId: string;
};

export function TerminalPane({ terminal, isShown, reason, tabId }: Props) {
  const state = useSyncExternalStore(terminal.subscribe, terminal.getState);
  const attach = useCallback(
    (element: HTMLElement | null) =>
      element ? terminal.attach(element, () => document.getElementById(tabId)?.focus()) : undefined,
    [terminal, tabId],
  );
  // A person who opens or chooses a terminal wants to type in it. A new terminal gets the focus when it has a size.
  useEffect(() => {
    if (isShown) terminal.focus();
  }, [isShown, terminal]);
  const isOver = state.kind === 'exited' || state.kind === 'gone' || state.kind === 'refused';
  return (
    <>
      <div role="status" className={styles.status} data-kind={state.kind}>
        <span>{textOf(state)}</span>
        {state.kind === 'cut' ? <Button onClick={() => terminal.retryNow()}>Try now</Button> : null}
        {isOver ? (
          <Button reason={reason} onClick={() => terminal.restart()}>
            Restart
          </Button>
        ) : null}
      </div>
      <div className={styles.frame}>
        <div ref={attach} className={styles.screen} />
      </div>
    </>
  );
}

function textOf(state: LinkState): string {
  switch (state.kind) {
    case 'connecting':
      return 'Connecting…';
    case 'open':
      return 'Connected.';
    case 'cut':
      return `Not connected: ${state.reason} The page connects again by itself. What you type meanwhile is not sent.`;
    case 'exited':
      return state.code === null
        ? `The program was ended by ${state.signal ?? 'a signal'}.`
        : `The program ended with code ${state.code}.`;
    case 'gone':
      return 'This terminal has ended: its program ended, nobody was connected to it for too long, or the machine stopped.';
    case 'refused':
      return state.reason;
  }
}
