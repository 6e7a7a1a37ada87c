// Translates Stripe's events into ours. Stripe sends events in any order, more than once, and also those of payments
// that other programs make with the same Stripe account.
import type { Stripe } from 'stripe';
import type { Money, PaymentEvent } from './provider.ts';

/** The metadata key under which every object that we make at Stripe has our account's id. */
export const ACCOUNT_ID = 'account_id';

/** Returns the event in our form; undefined for an event that changes no wallet. */
export function readStripeEvent(event: Stripe.Event): PaymentEvent | undefined {
  const eventId = event.id;
  switch (event.type) {
    case 'checkout.session.completed':
    case 'checkout.session.async_payment_succeeded': {
      const session = event.data.object;
      // Some payment methods take days after the page is completed. The second event follows when the money is there.
      if (session.mode !== 'payment' || session.payment_status !== 'paid') return undefined;
      return {
        ...{ eventId, kind: 'payment', accountId: accountIdOf(session), paymentId: idOf(session.payment_intent) },
        money: { cents: session.amount_total, currency: session.currency },
      };
    }
    case 'setup_intent.succeeded':
      return { eventId, kind: 'card', accountId: accountIdOf(event.data.object) };
    case 'refund.created':
    case 'refund.updated':
    case 'refund.failed': {
      // A pending refund counts at once, because this money is on its way back to the payer and must not be used.
      const { status } = event.data.object;
      return { eventId, kind: 'refund', ...withdrawal(event.data.object), isReversed: isOver(status) };
    }
    case 'charge.dispute.funds_withdrawn':
      return { eventId, kind: 'dispute', ...withdrawal(event.data.object), isReversed: false };
    case 'charge.dispute.funds_reinstated':
      return { eventId, kind: 'dispute', ...withdrawal(event.data.object), isReversed: true };
    default:
      return undefined;
  }
}

/** Our account's id in the metadata of an object. */
export const accountIdOf = ({ metadata }: { metadata: Stripe.Metadata | null }): string | undefined =>
  metadata?.[ACCOUNT_ID];

const withdrawal = (object: Stripe.Refund | Stripe.Dispute) => ({
  id: object.id,
  paymentId: idOf(object.payment_intent),
  money: { cents: object.amount, currency: object.currency } satisfies Money,
});

/** Whether a refund ended without the payer getting the money. */
const isOver = (status: string | null): boolean => status === 'failed' || status === 'canceled';

/** The id of an object. Stripe sends the id, or the whole object if a program has asked for that. */
const idOf = (reference: string | { id: string } | null): string | undefined =>
  typeof reference === 'string' ? reference : reference?.id;
