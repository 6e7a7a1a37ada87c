// The API keys of the account. The service lets only a signed-in person manage them, so with an API key each of these
// calls throws ForbiddenError.
import type { ApiKey, ApiKeyCreate, ApiKeyList, NewApiKey } from '@sandbar/contract/api-key.ts';
import type { CallOptions } from './call-options.ts';
import { acceptNotFound } from './service-errors.ts';
import type { Transport } from './transport.ts';

export class ApiKeys {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(call: CallOptions = {}): Promise<ApiKey[]> {
    return (await this.#transport.json<ApiKeyList>('GET', '/v1/api-keys', call)).api_keys;
  }

  /**
   * Creates a key. The answer has the text of the key in `key`, which the service never shows again. If the answer is
   * lost, the client does not repeat the request, because that would create a second key.
   */
  create(spec: ApiKeyCreate, call: CallOptions = {}): Promise<NewApiKey> {
    return this.#transport.json('POST', '/v1/api-keys', { ...call, body: spec });
  }

  /** Revokes a key; the service refuses it from the next request on. */
  delete(id: string, call: CallOptions = {}): Promise<void> {
    return this.#transport.run('DELETE', `/v1/api-keys/${encodeURIComponent(id)}`, call, acceptNotFound);
  }
}
