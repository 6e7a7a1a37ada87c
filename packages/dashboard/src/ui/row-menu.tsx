// The actions of a row, in a menu. An action that is not possible now stays in the menu and says why.
import { Menu } from '@base-ui/react/menu';
import type { ReactElement } from 'react';
import styles from './row-menu.module.css';

type RowAction = {
  label: string;
  /** Why the action is not possible now; undefined when it is. */
  reason?: string | undefined;
  isDanger?: boolean;
} & ({ onSelect: () => void } | { link: ReactElement });

/** `label` names the row for screen readers: "Actions of data". */
export function RowMenu({ label, actions }: { label: string; actions: readonly RowAction[] }) {
  return (
    <Menu.Root>
      <Menu.Trigger className={styles.trigger} aria-label={`Actions of ${label}`}>
        ⋯
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Positioner className={styles.positioner} align="end" sideOffset={4}>
          <Menu.Popup className={styles.popup}>
            {actions.map((action) => (
              <RowMenuItem key={action.label} action={action} />
            ))}
          </Menu.Popup>
        </Menu.Positioner>
      </Menu.Portal>
    </Menu.Root>
  );
}

function RowMenuItem({ action }: { action: RowAction }) {
  const { label, reason, isDanger = false } = action;
  const className = `${styles.item} ${isDanger ? styles.danger : ''}`;
  if (reason !== undefined) {
    return (
      <Menu.Item disabled className={className} label={label}>
        {label} <span className={styles.reason}>{reason}</span>
      </Menu.Item>
    );
  }
  if ('link' in action) {
    return (
      <Menu.LinkItem className={className} render={action.link}>
        {label}
      </Menu.LinkItem>
    );
  }
  return (
    <Menu.Item className={className} onClick={action.onSelect}>
      {label}
    </Menu.Item>
  );
}
