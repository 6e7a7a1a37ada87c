// How much the account uses and may use: machines, vcpus, memory, storage and volumes.
import type { Quotas as QuotasRecord } from '@sandbar/contract/quota.ts';
import type { CallOptions } from './call-options.ts';
import type { Transport } from './transport.ts';

export class Quotas {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  get(call: CallOptions = {}): Promise<QuotasRecord> {
    return this.#transport.json('GET', '/v1/quotas', call);
  }
}
