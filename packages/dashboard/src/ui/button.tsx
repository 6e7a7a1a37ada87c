// The button of the dashboard. A disabled button can still have the focus and says why it is disabled.
import { type ButtonHTMLAttributes, type ReactNode, Suspense, useId, useRef, useState } from 'react';
import styles from './button.module.css';
import { lazyPart } from './lazy-part.ts';

/** Loaded when the first reason is shown, because the script that places it is large. */
const ReasonTooltip = lazyPart(() => import('./reason-tooltip.tsx'), 'ReasonTooltip');

type Props = ButtonHTMLAttributes<HTMLButtonElement> & {
  kind?: 'plain' | 'primary' | 'danger';
  /** Why the button cannot be used now; undefined when it can. */
  reason?: string | undefined;
  busy?: boolean;
  children: ReactNode;
};

export function Button({ kind = 'plain', reason, busy = false, type = 'button', onClick, children, ...rest }: Props) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const [isPointed, setPointed] = useState(false);
  const isDisabled = reason !== undefined || busy;
  return (
    <>
      <button
        {...rest}
        ref={button}
        type={type}
        className={`${styles.button} ${styles[kind]}`}
        aria-disabled={isDisabled}
        aria-busy={busy}
        aria-describedby={reason === undefined ? undefined : id}
        onPointerEnter={() => setPointed(true)}
        onPointerLeave={() => setPointed(false)}
        onFocus={({ currentTarget }) => setPointed(currentTarget.matches(':focus-visible'))}
        onBlur={() => setPointed(false)}
        onKeyDown={({ key }) => (key === 'Escape' ? setPointed(false) : undefined)}
        onClick={(event) => {
          if (isDisabled) event.preventDefault();
          else onClick?.(event);
          // A touch screen has no pointer that hovers, so a tap shows the reason.
          setPointed(true);
        }}
      >
        {children}
      </button>
      {reason === undefined ? null : (
        <span id={id} hidden>
          {reason}
        </span>
      )}
      {reason === undefined || !isPointed ? null : (
        <Suspense>
          <ReasonTooltip anchor={button} reason={reason} />
        </Suspense>
      )}
    </>
  );
}
