// The tiers of accounts. The compiler checks that none is missing.
import type { AdminSchemas } from '../api/admin-client.ts';

export type Tier = AdminSchemas['AccountSummary']['tier'];
const NAMES: Record<Tier, true> = { free: true, payg: true, enterprise: true };
export const TIERS = Object.keys(NAMES) as Tier[];
