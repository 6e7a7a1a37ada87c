// The access rule of all operator routes under /admin/v1/.

/** An API key is not enough, whatever its scope. */
export const OPERATOR = {
  access: 'operator',
  sessionHint: 'Or run `sandbar admin` on the computer of the service.',
} as const;
