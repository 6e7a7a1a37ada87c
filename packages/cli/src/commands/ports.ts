// `sandbar ports`: lists the open ports of a machine, and says who may use one.
import type { Command } from '@commander-js/extra-typings';
import type { Port } from '@sandbar/contract/port.ts';
import { parseId, parseInteger, parsePort, UsageError } from '../arguments.ts';
import { connect } from '../connect.ts';
import { printJson, printLine, printTable } from '../print.ts';

export function definePorts(command: Command): void {
  command
    .argument('<machine>', 'the id of the machine', parseId)
    .argument('[port]', 'a port of the machine', parsePort)
    .option('--public', 'let everybody use the port')
    .option('--private', 'let only the account use the port, and who has a token')
    .option('--url', 'print an address that opens the port in a browser; who has it may use the port')
    .option('--expires-in <sec>', 'how long the address of --url works (3600)', parseInteger)
    .option('--json', 'print the answer of the API')
    .addHelpText(
      'after',
      `
Without a port, lists the ports on which programs listen. A port is private until you make it public.
sandbar forward MACHINE PORT listens on this computer and works for any protocol.`,
    )
    .action(async (machineId, port, options) => {
      const { public: isPublic, private: isPrivate, url, expiresIn, json } = options;
      const machine = connect().machine(machineId);
      const wishes = [isPublic, isPrivate, url].filter(Boolean).length;
      if (port === undefined) {
        if (wishes > 0) throw new UsageError('--public, --private and --url need a port');
        const ports = await machine.ports.list();
        if (json) printJson({ ports });
        else printPorts(ports);
        return;
      }
      if (wishes !== 1) throw new UsageError('give one of --public, --private and --url');
      if (url) {
        const token = await machine.port(port).token({ expiresInSec: expiresIn });
        if (json) printJson(token);
        else printLine(token.url);
        return;
      }
      const changed = await machine.port(port).setAccess(isPublic ? 'public' : 'private');
      if (json) printJson(changed);
      else printLine(`${changed.url} is ${changed.access}`);
    });
}

function printPorts(ports: readonly Port[]): void {
  if (ports.length === 0) {
    printLine('No open ports.');
    return;
  }
  const rows = ports.map(({ port, process, access, url }) => [`${port}`, process ?? '-', access, url]);
  printTable(['PORT', 'PROGRAM', 'ACCESS', 'URL'], rows);
}
