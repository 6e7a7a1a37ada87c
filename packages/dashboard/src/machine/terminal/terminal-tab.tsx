// The tab "terminal" of a machine: its terminals as tabs of their own.
import { Tabs } from '@base-ui/react/tabs';
import { useMutation, useQuery, useQueryClient } from '@tanstack/react-query';
import { useSyncExternalStore } from 'react';
import '@xterm/xterm/css/xterm.css';
import type { Schemas } from '../../api/client.ts';
import { reasonAgainst } from '../../machines/actions.ts';
import { accountQuery } from '../../session/session.ts';
import { Button } from '../../ui/button.tsx';
import { CodeSample } from '../../ui/code-sample.tsx';
import { endTerminal } from './end-terminal.ts';
import type { LiveTerminal } from './live-terminal.ts';
import { OtherTerminals, terminalsKey } from './other-terminals.tsx';
import styles from './terminal.module.css';
import { TerminalPane } from './terminal-pane.tsx';
import { terminalSamples } from './terminal-samples.ts';
import { type TerminalTabs, terminalTabsOf } from './terminal-tabs.ts';

type Machine = Schemas['Machine'];

const tabIdOf = ({ key }: LiveTerminal): string => `terminal-${key}`;

/** Shows nothing once the session has ended, because it would open a new terminal in place of the closed ones. */
export function TerminalTab({ machine }: { machine: Machine }) {
  const { data: account } = useQuery(accountQuery);
  if (!account) return null;
  return <Terminals machine={machine} tabs={terminalTabsOf(machine.id, machine.state === 'running')} />;
}

function Terminals({ machine, tabs }: { machine: Machine; tabs: TerminalTabs }) {
  const { terminals, active } = useSyncExternalStore(tabs.subscribe, tabs.getSnapshot);
  const reason = whyNot(machine);
  return (
    <>
      {reason === undefined ? null : <p className={styles.reason}>{reason}</p>}
      {active ? (
        <Tabs.Root value={active.key} onValueChange={(key) => tabs.show(String(key))}>
          <div className={styles.bar}>
            <Tabs.List className={styles.tabs} aria-label="Terminals">
              {terminals.map((terminal) => (
                <Tabs.Tab key={terminal.key} value={terminal.key} id={tabIdOf(terminal)} className={styles.tab}>
                  <Title terminal={terminal} />
                </Tabs.Tab>
              ))}
            </Tabs.List>
            <Button reason={reason} onClick={() => tabs.open()}>
              New terminal
            </Button>
            <CloseButton key={active.key} machineId={machine.id} tabs={tabs} terminal={active} />
          </div>
          {terminals.map((terminal) => (
            <Tabs.Panel key={terminal.key} value={terminal.key} keepMounted tabIndex={-1} className={styles.panel}>
              <TerminalPane
                terminal={terminal}
                isShown={terminal === active}
                reason={reason}
                tabId={tabIdOf(terminal)}
              />
            </Tabs.Panel>
          ))}
          <Keys />
        </Tabs.Root>
      ) : (
        <NoTerminals machine={machine} reason={reason} tabs={tabs} />
      )}
      <OtherTerminals machine={machine} tabs={tabs} />
    </>
  );
}

/**
 * Why no terminal can be opened now; undefined when one can. The rule is that for jobs, except that a job may wait for
 * a machine that is starting, and a terminal may not.
 */
function whyNot(machine: Machine): string | undefined {
  if (machine.state === 'running') return undefined;
  return `A terminal needs a running machine. ${reasonAgainst(machine, 'exec') ?? ''}`;
}

/** The number of the terminal, and the window title that its shell sets. */
function Title({ terminal }: { terminal: LiveTerminal }) {
  const title = useSyncExternalStore(terminal.subscribe, terminal.getTitle);
  return (
    <>
      Terminal {terminal.number}
      {title === '' ? null : <bdi className={styles.title}>{title}</bdi>}
    </>
  );
}

function CloseButton({ machineId, tabs, terminal }: { machineId: string; tabs: TerminalTabs; terminal: LiveTerminal }) {
  const state = useSyncExternalStore(terminal.subscribe, terminal.getState);
  const isLive = state.kind === 'open' || state.kind === 'cut';
  const queryClient = useQueryClient();
  const close = useMutation({
    mutationFn: async () => {
      if (isLive && terminal.id !== undefined) await endTerminal(machineId, terminal.id);
    },
    onSuccess: () => {
      tabs.close(terminal);
      return queryClient.invalidateQueries({ queryKey: terminalsKey(machineId) });
    },
  });
  const confirmClose = () => {
    if (!isLive || globalThis.confirm('End this terminal and the programs in it?')) close.mutate();
  };
  return (
    <>
      <Button kind={isLive ? 'danger' : 'plain'} busy={close.isPending} onClick={confirmClose}>
        {isLive ? 'End' : 'Close'} terminal {terminal.number}
      </Button>
      {close.error ? <span role="alert">{close.error.message}</span> : null}
    </>
  );
}

function NoTerminals({ machine, reason, tabs }: { machine: Machine; reason: string | undefined; tabs: TerminalTabs }) {
  return (
    <div className={styles.empty}>
      <p>No terminal is open here.</p>
      <Button kind="primary" reason={reason} onClick={() => tabs.open()}>
        Open a terminal
      </Button>
      <p>The same from elsewhere:</p>
      <CodeSample samples={terminalSamples(location.origin, machine.id)} />
    </div>
  );
}

function Keys() {
  return (
    <p className={styles.keys}>
      <kbd>Alt+Shift+↑</kbd> leaves the terminal by keyboard, because <kbd>Tab</kbd> belongs to the shell.{' '}
      <kbd>Ctrl+C</kbd> copies selected text, and interrupts when none is selected. <kbd>Ctrl+V</kbd> pastes. After you
      close this page, the programs go on for 10 minutes, and a reload joins them again.
    </p>
  );
}
