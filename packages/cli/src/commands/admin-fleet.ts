// `sandbar admin fleet`: what concerns all hosts together.
import type { Command } from '@commander-js/extra-typings';
import { callAdmin } from '../admin-socket.ts';
import { printNotice } from '../print.ts';

export function defineFleet(command: Command): void {
  command
    .command('rotate-authority')
    .description('replaces the certificate authority of the fleet; all connected hosts get new certificates in minutes')
    .action(async () => {
      await callAdmin('/admin/fleet/rotate-authority', {});
      printNotice('a new authority signs from now on; the old one is deleted when no host needs it any more');
    });
}
