// The query string of the page of accounts. Unknown or invalid parameters are dropped, so an old link still opens the
// page.
/** `q`: a part of the e-mail address or id. `account`: the id of the account that is shown. */
type AccountsSearch = { q?: string; account?: string };

export const accountsSearch = ({ q, account }: Record<string, unknown>): AccountsSearch => ({
  ...(typeof q === 'string' && q !== '' ? { q } : {}),
  ...(typeof account === 'string' ? { account } : {}),
});
