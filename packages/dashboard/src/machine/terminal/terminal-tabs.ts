// The terminals that this page has open in a machine, as tabs. They stay open while another page of the dashboard is
// shown, and are joined again after a reload. They close when the session ends.
import { onSessionEnd } from '../../session/session-end.ts';
import { Listeners } from '../../ui/listeners.ts';
import { LiveTerminal } from './live-terminal.ts';
import { forgetTerminals, loadTerminals, saveTerminals } from './saved-terminals.ts';
import type { Joined, Size } from './terminal-link.ts';

type Snapshot = { terminals: readonly LiveTerminal[]; active: LiveTerminal | undefined };

export class TerminalTabs {
  readonly #machineId: string;
  readonly #listeners = new Listeners();
  #snapshot: Snapshot = { terminals: [], active: undefined };
  #opened = 0;

  constructor(machineId: string) {
    this.#machineId = machineId;
    const saved = loadTerminals(machineId);
    const terminals = (saved?.terminals ?? []).map((terminal) => this.#create(terminal));
    this.#snapshot = { terminals, active: terminals[saved?.active ?? 0] ?? terminals[0] };
    // Saved when the page closes too, because only then is it final how much output the page has shown.
    globalThis.addEventListener('pagehide', this.#save);
    this.wasUsed = saved !== undefined;
  }

  readonly #save = (): void => {
    const { terminals, active } = this.#snapshot;
    const kept = terminals.filter(({ saved }) => saved !== undefined);
    saveTerminals(this.#machineId, {
      terminals: kept.flatMap(({ saved }) => saved ?? []),
      active: Math.max(0, active ? kept.indexOf(active) : 0),
    });
  };

  /** Whether a terminal of the machine was open in this browser tab before. */
  readonly wasUsed: boolean;
  readonly subscribe = this.#listeners.subscribe;
  readonly getSnapshot = (): Snapshot => this.#snapshot;

  /** Opens a terminal, or joins one that runs, and shows it. */
  open(id?: string): void {
    const terminal = this.#create(id === undefined ? undefined : { id, seen: undefined });
    this.#change({ terminals: [...this.#snapshot.terminals, terminal], active: terminal });
  }

  show(key: string): void {
    const active = this.#snapshot.terminals.find((terminal) => terminal.key === key);
    if (active) this.#change({ ...this.#snapshot, active });
  }

  /** Removes a terminal from the page. In the machine it goes on until it is ended. */
  close(closed: LiveTerminal): void {
    const { terminals, active } = this.#snapshot;
    const rest = terminals.filter((terminal) => terminal !== closed);
    const next = rest[Math.max(0, terminals.indexOf(closed) - 1)];
    this.#change({ terminals: rest, active: active === closed ? next : active });
    closed.dispose();
  }

  /** Removes all terminals from the page and does not join them after a reload. In the machine they go on. */
  closeAll(): void {
    globalThis.removeEventListener('pagehide', this.#save);
    for (const terminal of this.#snapshot.terminals) terminal.dispose();
    this.#snapshot = { terminals: [], active: undefined };
    this.#listeners.call();
    forgetTerminals(this.#machineId);
  }

  #create(joined?: Joined & Partial<Size>): LiveTerminal {
    this.#opened += 1;
    const terminal = new LiveTerminal(this.#machineId, this.#opened, joined);
    // Saved again on each change, because the id of a new terminal arrives with its first connection.
    terminal.subscribe(this.#save);
    return terminal;
  }

  #change(snapshot: Snapshot): void {
    this.#snapshot = snapshot;
    this.#save();
    this.#listeners.call();
  }
}

const tabsOfMachines = new Map<string, TerminalTabs>();

// The next person at this page must not see the text of the terminals, or type into them.
onSessionEnd(() => {
  for (const tabs of tabsOfMachines.values()) tabs.closeAll();
  tabsOfMachines.clear();
});

/** The tabs of a machine. When no terminal was open before, a first one is opened if the machine runs. */
export function terminalTabsOf(machineId: string, isRunning: boolean): TerminalTabs {
  const known = tabsOfMachines.get(machineId);
  if (known) return known;
  const tabs = new TerminalTabs(machineId);
  tabsOfMachines.set(machineId, tabs);
  if (isRunning && !tabs.wasUsed) tabs.open();
  return tabs;
}
