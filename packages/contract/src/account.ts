// The account as its owner sees it, and the names of the tiers and billing modes.
import { type Static, Type } from 'typebox';
import { OneOf, Timestamp, Uuid } from './fields.ts';
import { EUR_PATTERN } from './patterns.ts';

export const TIERS = ['free', 'payg', 'enterprise'] as const;
export type Tier = (typeof TIERS)[number];

/** `prepaid`: usage is paid from a wallet. `unmetered`: usage is recorded and nothing is charged. */
export const BILLING_MODES = ['prepaid', 'unmetered'] as const;
export type BillingMode = (typeof BILLING_MODES)[number];

export const Account = Type.Object(
  {
    id: Uuid(),
    email: Type.String(),
    tier: OneOf(TIERS),
    billing_mode: OneOf(BILLING_MODES),
    balance: Type.String({ pattern: EUR_PATTERN, description: 'EUR, six decimals.' }),
    is_operator: Type.Boolean({
      description:
        'Whether the dashboard offers the pages of the operator: to the first account, and to those named as operators.',
    }),
    created_at: Timestamp(),
  },
  { title: 'Account' },
);
export type Account = Static<typeof Account>;
