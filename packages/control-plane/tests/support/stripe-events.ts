// Events as Stripe sends them, with the fields that the service reads.
import { randomUUID } from 'node:crypto';

export type StripeEvent = { id: string; object: 'event'; type: string; data: { object: object } };

/** An event with an id of its own. */
export const eventOf = (type: string, object: object): StripeEvent => ({
  ...{ id: `evt_${randomUUID()}`, object: 'event', type },
  data: { object },
});

export const idAtStripe = (prefix: string): string => `${prefix}_${randomUUID().replaceAll('-', '')}`;

/** A payment through Checkout of `cents` euro cents. */
export const paid = (accountId: string, payment: string, cents: number, changes: object = {}): StripeEvent =>
  eventOf('checkout.session.completed', {
    ...{ object: 'checkout.session', mode: 'payment', payment_status: 'paid', payment_intent: payment },
    ...{ amount_total: cents, currency: 'eur', client_reference_id: accountId, metadata: { account_id: accountId } },
    ...changes,
  });

/** The same session, whose payment came later than its page was completed. */
export const paidLater = (accountId: string, payment: string, cents: number): StripeEvent => ({
  ...paid(accountId, payment, cents),
  type: 'checkout.session.async_payment_succeeded',
});

export const cardAdded = (accountId: string): StripeEvent =>
  eventOf('setup_intent.succeeded', {
    ...{ object: 'setup_intent', id: idAtStripe('seti'), status: 'succeeded', metadata: { account_id: accountId } },
  });

type Refund = 'refund.created' | 'refund.updated' | 'refund.failed';
type Status = 'pending' | 'succeeded' | 'failed' | 'canceled';

export const refund = (type: Refund, id: string, status: Status, payment: string, cents: number): StripeEvent =>
  eventOf(type, {
    object: 'refund',
    id,
    status,
    payment_intent: payment,
    amount: cents,
    currency: 'eur',
    metadata: {},
  });

export const dispute = (funds: 'withdrawn' | 'reinstated', id: string, payment: string, cents: number): StripeEvent =>
  eventOf(`charge.dispute.funds_${funds}`, {
    ...{ object: 'dispute', id, payment_intent: payment, amount: cents, currency: 'eur', metadata: {} },
  });
