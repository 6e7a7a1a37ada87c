// The account that the key belongs to.
import type { Account as AccountRecord } from '@sandbar/contract/account.ts';
import type { CallOptions } from './call-options.ts';
import type { Transport } from './transport.ts';

export class Account {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  get(call: CallOptions = {}): Promise<AccountRecord> {
    return this.#transport.json('GET', '/v1/account', call);
  }
}
