// Stands in for a payment provider when none is configured: only the operator adds credit.
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { PaymentProvider } from './provider.ts';

export function createManualProvider(): PaymentProvider {
  const refuse = async () => {
    throw new ServiceError('forbidden', 'This service takes no payments online; its operator adds credit.');
  };
  return { openTopUpPage: refuse, openCardPage: refuse, reports: undefined };
}
