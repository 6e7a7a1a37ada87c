// Gets a certificate from an authority: proves over HTTP that the domains lead here, and sends a request for a new key.
// The protocol is that of the library acme-client.
import type { AcmeConfig } from '../config.ts';
import type { Pair } from '../pair.ts';
import type { Challenges } from './challenges.ts';
import type { AcmeStore } from './store.ts';

/** Orders a certificate. Throws an Error of the authority or the network. */
export async function orderCertificate(acme: AcmeConfig, store: AcmeStore, challenges: Challenges): Promise<Pair> {
  // The library is large, and most services never use it.
  const { Client, crypto } = await import('acme-client');
  let accountKey = await store.accountKey();
  if (accountKey === undefined) {
    accountKey = (await crypto.createPrivateEcdsaKey()).toString();
    await store.saveAccountKey(accountKey);
  }
  const client = new Client({ directoryUrl: acme.directory, accountKey });
  const [key, csr] = await crypto.createCsr({ altNames: [...acme.domains] }, await crypto.createPrivateEcdsaKey());
  const cert = await client.auto({
    csr,
    email: acme.email,
    termsOfServiceAgreed: true,
    challengePriority: ['http-01'],
    // The service may not reach itself by its public address, so only the authority looks.
    skipChallengeVerification: true,
    challengeCreateFn: async (_authorization, { token }, answer) => challenges.add(token, answer),
    challengeRemoveFn: async (_authorization, { token }) => challenges.remove(token),
  });
  return { cert, key: key.toString() };
}
