// The lines of a job's output. Only the lines on the screen are in the document. The view follows the end until the
// person scrolls up; "Latest" returns to it.
import { useVirtualizer } from '@tanstack/react-virtual';
import { memo, useRef } from 'react';
import { Button } from '../../ui/button.tsx';
import type { Line } from './line-buffer.ts';
import styles from './output.module.css';

const LINE_PX = 20;
/** The space above the first line and below the last one. */
const EDGE_PX = 6;
/** Within this distance, the view counts as scrolled to the end, in pixels. */
const END_PX = 24;

type Props = { label: string; lines: readonly Line[]; busy: boolean };

export function OutputView({ label, lines, busy }: Props) {
  const scroller = useRef<HTMLElement>(null);
  const virtual = useVirtualizer({
    count: lines.length,
    getScrollElement: () => scroller.current,
    getItemKey: (index) => lines[index]?.key ?? index,
    estimateSize: () => LINE_PX,
    paddingStart: EDGE_PX,
    paddingEnd: EDGE_PX,
    overscan: 20,
    initialOffset: Number.MAX_SAFE_INTEGER,
    anchorTo: 'end',
    followOnAppend: true,
    scrollEndThreshold: END_PX,
  });
  const items = virtual.getVirtualItems();
  const isAtEnd = virtual.isAtEnd(END_PX);
  return (
    <div className={styles.view}>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must be reachable by keyboard. */}
      <section ref={scroller} className={styles.scroller} aria-label={label} aria-busy={busy} tabIndex={0}>
        <div className={styles.all} style={{ height: virtual.getTotalSize() }}>
          <div className={styles.shown} style={{ transform: `translateY(${items[0]?.start ?? 0}px)` }}>
            {items.map(({ key, index }) => {
              const line = lines[index];
              return line ? (
                <div key={key} ref={virtual.measureElement} data-index={index} className={styles.line}>
                  <LineText line={line} />
                </div>
              ) : null;
            })}
          </div>
        </div>
      </section>
      {isAtEnd ? null : (
        <div className={styles.latest}>
          <Button onClick={() => virtual.scrollToEnd()}>↓ Latest</Button>
        </div>
      )}
    </div>
  );
}

const LineText = memo(function LineText({ line: { spans } }: { line: Line }) {
  return spans.map(({ text, classes }, at) =>
    classes.length === 0 ? (
      text
    ) : (
      // biome-ignore lint/suspicious/noArrayIndexKey: the spans of a line never change.
      <span key={at} className={classes.map((name) => styles[name]).join(' ')}>
        {text}
      </span>
    ),
  );
});
