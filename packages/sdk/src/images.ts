// Images, from which machines are created. A machine's `stack` is the name of its image.
import type { Image } from '@sandbar/contract/image.ts';
import type { CallOptions } from './call-options.ts';
import type { Transport } from './transport.ts';

export class Images {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  async list(call: CallOptions = {}): Promise<Image[]> {
    return (await this.#transport.json<{ images: Image[] }>('GET', '/v1/images', call)).images;
  }
}
