// `sandbar host`: makes this computer a host of a fleet, runs it, and takes it out of the fleet.
import type { Command } from '@commander-js/extra-typings';
import type { HostStatus } from '@sandbar/service/fleet/host-status.ts';
import { addExamples } from '../examples.ts';
import { onInterruption } from '../interruption.ts';
import { printJson, printLine, printNotice } from '../print.ts';
import { withService } from '../service-code.ts';

export function defineHost(command: Command): void {
  command.addHelpText(
    'after',
    `
Run these on the computer that becomes a host, as root, in the Sandbar checkout. It needs no control plane and no database
of its own. sandbar admin host token, on the computer of the control plane, makes the token. SANDBAR_HOME names the data
directory.`,
  );
  addExamples(command, 'sandbar host join --url https://sandbar.example.com --token TOKEN', 'sandbar host run');
  defineJoin(command.command('join'));
  defineRun(command.command('run'));
  defineStatus(command.command('status'));
  defineLeave(command.command('leave'));
}

const TOKEN_VARIABLE = 'SANDBAR_HOST_TOKEN';

function defineJoin(command: Command): void {
  command
    .description('makes this computer a host of the fleet')
    .requiredOption('--url <url>', 'the address of the API')
    .option('--token <token>', `the token of sandbar admin host token (${TOKEN_VARIABLE}, which no process list shows)`)
    .option(
      '--address <host:port>',
      'where the control plane reaches this host (the interface towards the URL, port 7072)',
    )
    .option('--listen <host:port>', 'where the agent listens (all interfaces, the port of --address)')
    .option('--name <name>', 'a label for people (the host name)')
    .option('--again', 'join once more, with a new address or after the certificate has expired')
    .addHelpText(
      'after',
      `
The key of this host never leaves it. After a failure or a lost answer, run the same command again.`,
    )
    .action(async ({ url, token = process.env[TOKEN_VARIABLE] ?? '', address, listen, name, again }) => {
      const load = async () => ({
        ...(await import('@sandbar/service/config.ts')),
        ...(await import('@sandbar/service/fleet/join-host.ts')),
      });
      await withService(load, async ({ readConfig, joinHost }) => {
        const config = readConfig(process.env, process.getuid?.() ?? -1);
        const joined = await joinHost({ url, token, address, listen, name, isAgain: again === true }, config);
        printLine(`This host has joined ${joined.url} as ${joined.name}.`);
        printLine(`  host id      ${joined.host_id}`);
        printLine(`  address      ${joined.address}`);
        printLine(`  listens on   ${joined.listen}`);
        printLine(`  certificate  until ${joined.validTo.toISOString()}; the control plane renews it`);
        printLine(
          `Let the control plane, and nobody else, reach ${joined.address}. Then start the host: sandbar host run`,
        );
        if (joined.isRunning) printNotice('the agent runs already: restart it, so that it uses the new certificate');
      });
    });
  addExamples(
    command,
    'sandbar host join --url https://sandbar.example.com --token TOKEN',
    'sandbar host join --url https://sandbar.example.com --token TOKEN --address 10.0.0.5:7072 --name rack-1',
  );
}

function defineRun(command: Command): void {
  command
    .description('runs the host agent in this terminal, and starts it again when it ends')
    .addHelpText(
      'after',
      `
The first run installs packages and builds the base image, as npm start does. Ctrl-C ends the agent; the machines go on
running, and the next agent takes them over.`,
    )
    .action(async () => {
      const load = async () => ({
        ...(await import('@sandbar/service/config.ts')),
        ...(await import('@sandbar/service/fleet/run-host.ts')),
        ...(await import('@sandbar/service/progress.ts')),
      });
      await withService(load, async ({ readConfig, runHost, lineProgress }) => {
        const stop = onInterruption();
        const progress = lineProgress((text) => process.stdout.write(text), process.stdout.isTTY);
        const onReady = () => printLine('The host is ready. Ctrl-C ends its agent; machines go on running.');
        await runHost(readConfig(process.env, process.getuid?.() ?? -1), progress, stop, onReady);
      });
    });
  addExamples(command, 'sandbar host run');
}

function defineStatus(command: Command): void {
  command
    .description('says whether this host has joined a fleet and its agent runs')
    .option('--json', 'print the status as JSON')
    .addHelpText(
      'after',
      `
Exit code: 0 when the host is in a fleet and its agent runs, 1 when not.`,
    )
    .action(async ({ json }) => {
      const load = async () => ({
        ...(await import('@sandbar/service/config.ts')),
        ...(await import('@sandbar/service/fleet/host-status.ts')),
      });
      await withService(load, async ({ readConfig, readHostStatus }) => {
        const status = readHostStatus(readConfig(process.env, process.getuid?.() ?? -1));
        if (json) printJson(status);
        else printStatus(status);
        process.exitCode = status.healthy ? 0 : 1;
      });
    });
  addExamples(command, 'sandbar host status', 'sandbar host status --json');
}

function printStatus({ problems, home, fleet, agent_pid }: HostStatus): void {
  const rows = [
    ['fleet', fleet?.url],
    ['host id', fleet?.host_id],
    ['address', fleet?.address],
    ['listens on', fleet?.listen],
    ['certificate', fleet === null ? null : `until ${fleet.certificate_until}`],
    ['agent', agent_pid === null ? null : `runs, pid ${agent_pid}`],
    ['data', home],
  ];
  for (const [name, value] of rows) if (name && value) printLine(`${name.padEnd(13)}${value}`);
  for (const problem of problems) printNotice(problem);
}

function defineLeave(command: Command): void {
  command
    .description('removes the key and the certificate of this host, so that the control plane cannot reach it any more')
    .option('--force', 'although there are machines or disks on this host, which stay')
    .action(async ({ force }) => {
      const load = async () => ({
        ...(await import('@sandbar/service/config.ts')),
        ...(await import('@sandbar/service/fleet/leave-fleet.ts')),
      });
      await withService(load, async ({ readConfig, leaveFleet }) => {
        const { url, isRunning } = leaveFleet(readConfig(process.env, process.getuid?.() ?? -1), force === true);
        printLine(url === undefined ? 'This host is in no fleet.' : `This host has left ${url}.`);
        if (isRunning) printNotice('the agent still runs and listens: end sandbar host run, or restart it');
      });
    });
  addExamples(command, 'sandbar host leave');
}
