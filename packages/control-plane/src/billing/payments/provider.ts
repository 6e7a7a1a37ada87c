// The interface of a payment provider. A provider shows pages on which people pay, and reports later, by webhooks, what
// was paid. Only a report changes a wallet: a person may close the page at any time.

/** Who pays. */
export type Payer = {
  accountId: string;
  email: string;
  /** The account's customer id at the provider; null before its first page. */
  customerId: string | null;
};

/**
 * The address of a page that the provider made, and the id of its customer. If the account had no customer at the
 * provider yet, the provider has just created this one.
 */
export type OpenedPage = { url: string; customerId: string };

/** An amount as providers count it: whole cents, and a currency code in lower case. Null where a report lacks it. */
export type Money = { cents: number | null; currency: string | null };

/**
 * What a webhook reports. `eventId` is the same when the provider repeats a report. An account id is what the provider
 * returns, so there may be no such account.
 */
export type PaymentEvent = { eventId: string } & (
  | { kind: 'payment'; accountId: string | undefined; paymentId: string | undefined; money: Money }
  | { kind: 'card'; accountId: string | undefined }
  | {
      /** Money went back to the payer. */
      kind: 'refund' | 'dispute';
      /** The refund or the dispute. */
      id: string;
      /** The payment that it takes back. */
      paymentId: string | undefined;
      money: Money;
      /** True when the money has come back to us: the refund failed, or the dispute was won. */
      isReversed: boolean;
    }
);

export type PaymentReports = {
  /** The provider's name, such as `stripe`. References in the ledger and the path of the webhook contain it. */
  provider: string;
  /**
   * Reads a webhook. Undefined for a report that changes no wallet. Throws `validation_error` if the signature is not
   * the provider's or is too old.
   */
  read(body: Buffer, signature: string | undefined): PaymentEvent | undefined;
  /**
   * The account for which a payment was made; undefined if the payment is unknown or not for an account. Throws
   * `payments_unavailable`.
   */
  findAccountId(paymentId: string): Promise<string | undefined>;
};

export type PaymentProvider = {
  /** Makes a page for paying an amount. Throws `payments_unavailable`, or `forbidden` if nobody can pay online. */
  openTopUpPage(payer: Payer, cents: number): Promise<OpenedPage>;
  /** Makes a page for adding a card. Throws like `openTopUpPage`. */
  openCardPage(payer: Payer): Promise<OpenedPage>;
  /** Undefined for a provider without webhooks. */
  reports: PaymentReports | undefined;
};
