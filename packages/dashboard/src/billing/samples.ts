// Code samples that read the ledger with curl, the CLI, TypeScript and Python.
import { samplesOf } from '../machines/samples.ts';
import type { Sample } from '../ui/code-sample.tsx';

export const ledgerSamples = (origin: string): Sample[] =>
  samplesOf({
    origin,
    method: 'GET',
    path: '/v1/billing/ledger',
    cli: 'sandbar ledger',
    typescript: 'for await (const entry of sandbar.billing.ledger()) console.log(entry);',
  });
