// The client for the operator's API. When the API asks to confirm the password, the request waits until the person has
// done so and is then sent again. An account without a password signs in again instead. Paths, parameters and answers
// are typed by the operator's OpenAPI document.
import createClient from 'openapi-fetch';
import type { components, paths } from './admin-schema.d.ts';
import { connectionWatch } from './client.ts';
import { type Proof, passwordGate } from './password-gate.ts';

export type AdminSchemas = components['schemas'];

export const adminApi = createClient<paths>({
  baseUrl: '/',
  credentials: 'same-origin',
  fetch: async (request: Request) => {
    const again = request.clone();
    const response = await fetch(request);
    if (response.ok) passwordGate.pass();
    const proof = await askedProof(response);
    if (proof === undefined) return response;
    const isConfirmed = await passwordGate.ask(request.method === 'GET' ? 'read' : 'change', proof);
    return isConfirmed ? fetch(again) : response;
  },
});

adminApi.use(connectionWatch);

/** How the API wants the person to prove who they are; undefined for all other answers. */
async function askedProof(response: Response): Promise<Proof | undefined> {
  if (response.status !== 403) return undefined;
  const body: unknown = await response
    .clone()
    .json()
    .catch(() => undefined);
  if (typeof body !== 'object' || body === null || !('code' in body)) return undefined;
  if (body.code === 'password_required') return 'password';
  return body.code === 'sign_in_required' ? 'sign-in' : undefined;
}
