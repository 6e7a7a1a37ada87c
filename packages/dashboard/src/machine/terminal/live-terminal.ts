// One terminal of the page: its screen (xterm.js) and its connection. It lives outside of React, so it keeps its text
// and stays connected while another part of the dashboard is shown.
import { FitAddon } from '@xterm/addon-fit';
import { Terminal } from '@xterm/xterm';
import { Listeners } from '../../ui/listeners.ts';
import { callsOf } from './link-calls.ts';
import { ScreenOutput } from './screen-output.ts';
import { addShortcuts, cleanPastes } from './terminal-keys.ts';
import { type Joined, type LinkState, type Size, TerminalLink } from './terminal-link.ts';
import { onThemeChange, readFont, readTheme } from './terminal-theme.ts';
import { openWithSheets } from './xterm-styles.ts';

const SCROLLBACK_LINES = 5_000;

const encoder = new TextEncoder();

let created = 0;

/** What a page stores to join a terminal again after a reload. */
export type SavedTerminal = Size & Joined;

export class LiveTerminal {
  /** A counter, because browsers have `crypto.randomUUID` on secure origins only. */
  readonly key = `terminal-${created++}`;
  readonly number: number;
  readonly #screen: Terminal;
  readonly #output: ScreenOutput;
  readonly #fit = new FitAddon();
  readonly #element = document.createElement('div');
  readonly #listeners = new Listeners();
  readonly #machineId: string;
  #link: TerminalLink;
  #isRunning = false;
  #isDisposed = false;
  #state: LinkState = { kind: 'connecting' };
  #title = '';
  #onLeave: () => void = () => undefined;
  #removeSheets: (() => void) | undefined;
  #cleanUps: (() => void)[] = [];

  constructor(machineId: string, number: number, joined?: Joined & Partial<Size>) {
    this.#machineId = machineId;
    this.number = number;
    const size =
      joined?.cols !== undefined && joined.rows !== undefined ? { cols: joined.cols, rows: joined.rows } : {};
    this.#screen = new Terminal({
      ...size,
      scrollback: SCROLLBACK_LINES,
      fontSize: 13,
      // The colours of programs must be readable on both themes.
      minimumContrastRatio: 4.5,
      allowProposedApi: false,
      rightClickSelectsWord: false,
    });
    this.#output = new ScreenOutput(this.#screen);
    this.#screen.loadAddon(this.#fit);
    this.#screen.onData((text) => this.#type(encoder.encode(text)));
    this.#screen.onBinary((text) => this.#type(Uint8Array.from(text, (char) => char.charCodeAt(0))));
    this.#screen.onTitleChange((title) => {
      this.#title = title;
      this.#listeners.call();
    });
    addShortcuts(this.#screen, () => this.#onLeave());
    this.#link = this.#createLink(joined);
    // A joined terminal has a size already, so it connects now. Otherwise it would time out in a tab that nobody opens.
    if (joined) this.#start();
    const onOnline = () => this.#link.reconnect();
    globalThis.addEventListener('online', onOnline);
    this.#cleanUps.push(() => globalThis.removeEventListener('online', onOnline));
  }

  readonly subscribe = this.#listeners.subscribe;
  readonly getState = (): LinkState => this.#state;
  readonly getTitle = (): string => this.#title;

  get id(): string | undefined {
    return this.#link.id;
  }

  /** Undefined when there is nothing to join after a reload. */
  get saved(): SavedTerminal | undefined {
    const { id, seen } = this.#link;
    if (id === undefined || this.#state.kind === 'exited' || this.#state.kind === 'gone') return undefined;
    return { id, seen, cols: this.#screen.cols, rows: this.#screen.rows };
  }

  /**
   * Shows the terminal in an element and fits it to the element's size. `onLeave` is called when the person leaves it
   * by keyboard. Returns a function that removes it from the element.
   */
  attach(parent: HTMLElement, onLeave: () => void): () => void {
    this.#onLeave = onLeave;
    parent.append(this.#element);
    const observer = new ResizeObserver(() => this.#fitTo(parent));
    observer.observe(parent);
    return () => {
      observer.disconnect();
      this.#element.remove();
    };
  }

  focus(): void {
    this.#screen.focus();
  }

  retryNow(): void {
    this.#link.retryNow();
  }

  /** Opens a new terminal in place of one that ended. The old text stays above. */
  restart(): void {
    this.#link.leave();
    this.#output.endModes();
    this.#link = this.#createLink(undefined);
    this.#link.resize({ cols: this.#screen.cols, rows: this.#screen.rows });
    this.#isRunning = false;
    this.#setState({ kind: 'connecting' });
    this.#start();
    this.focus();
  }

  dispose(): void {
    this.#isDisposed = true;
    this.#link.leave();
    for (const cleanUp of this.#cleanUps) cleanUp();
    this.#screen.dispose();
    this.#removeSheets?.();
    this.#element.remove();
  }

  #start(): void {
    if (this.#isRunning) return;
    this.#isRunning = true;
    void this.#link.run();
  }

  #createLink(joined: Joined | undefined): TerminalLink {
    return new TerminalLink(
      callsOf(this.#machineId),
      {
        onState: (state) => this.#setState(state),
        onOutput: (piece) => this.#output.show(piece),
        onGap: (bytes) => this.#output.note(`${bytes} bytes of output are lost`),
      },
      joined,
    );
  }

  /** A hidden element has no size. It is measured when it is first seen, and a new terminal starts with that size. */
  #fitTo(parent: HTMLElement): void {
    if (parent.clientWidth === 0 || parent.clientHeight === 0) return;
    if (!this.#screen.element) {
      this.#open();
      // An earlier call of `focus` had no effect, because there was no element yet.
      this.focus();
    }
    this.#fit.fit();
    this.#link.resize({ cols: this.#screen.cols, rows: this.#screen.rows });
    this.#start();
  }

  #open(): void {
    const setTheme = () => {
      this.#screen.options.theme = readTheme(this.#element);
    };
    this.#removeSheets = openWithSheets(() => {
      this.#screen.options.fontFamily = readFont(this.#element);
      setTheme();
      this.#screen.open(this.#element);
    });
    this.#cleanUps.push(onThemeChange(setTheme), cleanPastes(this.#screen, this.#element));
  }

  /** Sends keys and xterm's replies to queries in the output, except replies to queries in replayed output. */
  #type(bytes: Uint8Array<ArrayBuffer>): void {
    if (!this.#output.isReplay) this.#link.write(bytes);
  }

  #setState(state: LinkState): void {
    if (this.#isDisposed) return;
    this.#state = state;
    this.#screen.options.disableStdin = state.kind !== 'open';
    this.#listeners.call();
  }
}
