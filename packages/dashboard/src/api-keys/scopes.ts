// The scopes of API keys in words.
import type { Schemas } from '../api/client.ts';

export type Scope = Schemas['ApiKey']['scope'];

export const SCOPES: Record<Scope, string> = { read: 'read only', full: 'read and change' };
