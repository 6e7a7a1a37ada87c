// The command palette: finds pages and machines by words of their name or id. Arrow keys choose, Enter opens, Escape
// closes.
import { Autocomplete } from '@base-ui/react/autocomplete';
import { Dialog } from '@base-ui/react/dialog';
import { useQuery } from '@tanstack/react-query';
import { useNavigate } from '@tanstack/react-router';
import { type RefObject, useRef } from 'react';
import type { Schemas } from '../api/client.ts';
import { machinesQuery } from '../machines/machines-query.ts';
import { StateBadge } from '../machines/state-badge.tsx';
import { accountQuery } from '../session/session.ts';
import { type Page, pageGroups } from './pages.ts';
import styles from './palette.module.css';

type Item = { id: string; text: string } & ({ page: Page } | { machine: Schemas['Machine'] });
type Group = { value: string; items: Item[] };

/** Only this many items are shown. Another word narrows the list. */
const MOST_ITEMS = 40;

/** True when the item contains every word of the query. */
const matches = (item: Item, query: string): boolean =>
  query
    .toLowerCase()
    .split(/\s+/)
    .every((word) => item.text.includes(word));

/** The palette is open while it is mounted. It focuses the field, and gives the focus back when it closes. */
export function Palette({ onClose }: { onClose: () => void }) {
  const input = useRef<HTMLInputElement>(null);
  return (
    <Dialog.Root open onOpenChange={onClose}>
      <Dialog.Portal>
        <Dialog.Backdrop className={styles.backdrop} />
        <Dialog.Popup className={styles.popup} aria-label="Go to a page or a machine" initialFocus={input}>
          <Choice input={input} onClose={onClose} />
        </Dialog.Popup>
      </Dialog.Portal>
    </Dialog.Root>
  );
}

function Choice({ input, onClose }: { input: RefObject<HTMLInputElement | null>; onClose: () => void }) {
  const navigate = useNavigate();
  const groups = useGroups();
  const open = (item: Item) => {
    onClose();
    if ('page' in item) void navigate({ to: item.page.to, search: {} });
    else void navigate({ to: '/machines/$machineId', params: { machineId: item.machine.id }, search: {} });
  };
  return (
    <Autocomplete.Root
      open
      inline
      items={groups}
      filter={matches}
      itemToStringValue={({ text }) => text}
      limit={MOST_ITEMS}
      autoHighlight="always"
      keepHighlight
    >
      <div className={styles.head}>
        <Autocomplete.Input
          ref={input}
          className={styles.input}
          aria-label="Page or machine"
          placeholder="Page, or name or id of a machine"
        />
        <Dialog.Close className={styles.close}>Close</Dialog.Close>
      </div>
      <Autocomplete.Empty>
        <p className={styles.empty}>No page or machine has these words.</p>
      </Autocomplete.Empty>
      <Autocomplete.List className={styles.list}>
        {(group: Group) => (
          <Autocomplete.Group key={group.value} items={group.items}>
            <Autocomplete.GroupLabel className={styles.group}>{group.value}</Autocomplete.GroupLabel>
            <Autocomplete.Collection>
              {(item: Item) => (
                <Autocomplete.Item key={item.id} value={item} className={styles.item} onClick={() => open(item)}>
                  {'page' in item ? item.page.label : <MachineItem machine={item.machine} />}
                </Autocomplete.Item>
              )}
            </Autocomplete.Collection>
          </Autocomplete.Group>
        )}
      </Autocomplete.List>
    </Autocomplete.Root>
  );
}

function MachineItem({ machine }: { machine: Schemas['Machine'] }) {
  return (
    <>
      <bdi className={styles.name}>{machine.name || machine.id}</bdi>
      {machine.name ? <code className={styles.id}>{machine.id}</code> : null}
      <StateBadge machine={machine} />
    </>
  );
}

/** Pages first, then machines; a group without items is left out. */
function useGroups(): Group[] {
  const { data: account } = useQuery(accountQuery);
  const { data: machines = [] } = useQuery(machinesQuery);
  const pages = pageGroups(account?.is_operator ?? false).flatMap((group) => group.pages);
  const groups: Group[] = [
    { value: 'Pages', items: pages.map((page) => ({ id: page.to, text: page.label.toLowerCase(), page })) },
    {
      value: 'Machines',
      items: machines.map((machine) => ({
        id: machine.id,
        text: `${machine.name} ${machine.id}`.toLowerCase(),
        machine,
      })),
    },
  ];
  return groups.filter(({ items }) => items.length > 0);
}
