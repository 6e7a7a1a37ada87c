// The mails about a balance that runs out.
import type { MailText } from '../mail/outbox.ts';
import { formatEur } from './money.ts';

export type Notice = 'low' | 'empty' | 'week' | 'day';

/** What the texts need. `reclaimAt`: the earliest time at which the resources of the account are removed. */
export type NoticeFacts = { balanceMicros: number; reclaimAt: Date | null; publicUrl: string };

/** Returns the mail for a warning. */
export function noticeText(notice: Notice, { balanceMicros, reclaimAt, publicUrl }: NoticeFacts): MailText {
  const balance = `The balance of your Sandbar account is ${formatEur(balanceMicros)} EUR.`;
  const date = formatTime(reclaimAt);
  const deletion = `On ${date} all your machines, snapshots and volumes will be deleted, with all data on them.`;
  const remedy = `To prevent that, add money to your account:\n${publicUrl}`;
  switch (notice) {
    case 'low':
      return {
        subject: 'Your Sandbar balance is low',
        body: paragraphs(
          `${balance} That is a fifth or less of what you had after the last payment.`,
          'When it reaches zero, all your running machines are stopped.',
          remedy,
        ),
      };
    case 'empty':
      return {
        subject: 'Your Sandbar balance is used up',
        body: paragraphs(`${balance} All your running machines are stopped. Their disks are kept.`, deletion, remedy),
      };
    case 'week':
      return {
        subject: 'Your Sandbar machines and volumes will be deleted soon',
        body: paragraphs(`${balance} ${deletion}`, remedy),
      };
    case 'day':
      return {
        subject: 'Last warning: your Sandbar machines and volumes will be deleted',
        body: paragraphs(`${balance} ${deletion}`, remedy),
      };
  }
}

const paragraphs = (...texts: string[]): string => `${texts.join('\n\n')}\n`;

/** Such as "2026-12-01 14:30 UTC". */
const formatTime = (time: Date | null): string =>
  `${(time ?? new Date(0)).toISOString().slice(0, 16).replace('T', ' ')} UTC`;
