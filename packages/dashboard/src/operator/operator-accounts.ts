// Which accounts an operator cannot change here. The API refuses them too.
import type { AdminSchemas } from '../api/admin-client.ts';

/** Why an operator cannot change this account, except by crediting it. */
export function reasonAgainstChange({ is_operator, deleted_at }: AdminSchemas['AccountDetails']): string | undefined {
  if (deleted_at !== null) return 'The account is deleted.';
  return is_operator ? 'The account of an operator is changed with sandbar admin account.' : undefined;
}
