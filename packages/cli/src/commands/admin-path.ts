// Paths of the operator's requests about one account.

/** The path of an account, which is named by its id or its e-mail address. */
export const pathOf = (idOrEmail: string): string => `/admin/accounts/${encodeURIComponent(idOrEmail)}`;
