// The query string of the list of API keys: whether the form for a new key is open. Unknown or invalid parameters are
// dropped, so an old link still opens the page.
type ApiKeysSearch = { new?: true };

export const apiKeysSearch = (search: Record<string, unknown>): ApiKeysSearch =>
  search.new === true ? { new: true } : {};
