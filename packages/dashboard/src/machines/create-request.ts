// Sends the request that creates a machine.
import { api, type Schemas, unwrap } from '../api/client.ts';
import type { CreateBody } from './create-body.ts';

/** Repeated with the same idempotency key, the request creates only one machine. */
export const postMachine = (body: CreateBody, key: string) =>
  unwrap(
    api.POST('/v1/machines', {
      params: { header: { 'idempotency-key': key } },
      body: body as Schemas['MachineCreate'],
    }),
  );

/**
 * Returns a function that gives the same body the same key. Another body gets another key, because the service refuses
 * a key that was used with another body.
 */
export function keyPerBody(): (body: CreateBody) => string {
  const keys = new Map<string, string>();
  return (body) => {
    const text = JSON.stringify(body);
    const key = keys.get(text) ?? newKey();
    keys.set(text, key);
    return key;
  };
}

/** Not `crypto.randomUUID`, which browsers have on secure origins only. */
const newKey = (): string => [...crypto.getRandomValues(new Uint32Array(4))].map((part) => part.toString(36)).join('-');
