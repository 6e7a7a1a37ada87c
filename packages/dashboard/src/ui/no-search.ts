// The query string of a page without parameters. Unknown parameters are dropped, so an old link still opens the page.
type NoSearch = Record<never, never>;

export const noSearch = (_search: Record<string, unknown>): NoSearch => ({});
