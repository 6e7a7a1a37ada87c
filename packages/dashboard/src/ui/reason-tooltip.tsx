// Shows beside a button why it is disabled. It is in a portal, so that no scrolling list clips it.
import { Tooltip } from '@base-ui/react/tooltip';
import type { RefObject } from 'react';
import styles from './button.module.css';

export function ReasonTooltip({ anchor, reason }: { anchor: RefObject<HTMLElement | null>; reason: string }) {
  return (
    <Tooltip.Root open>
      <Tooltip.Portal>
        <Tooltip.Positioner anchor={anchor} className={styles.positioner} sideOffset={4} collisionPadding={8}>
          <Tooltip.Popup role="tooltip" className={styles.reason}>
            {reason}
          </Tooltip.Popup>
        </Tooltip.Positioner>
      </Tooltip.Portal>
    </Tooltip.Root>
  );
}
