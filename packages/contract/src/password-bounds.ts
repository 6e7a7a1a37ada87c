// The lengths of a new password. They are apart from the schemas of auth.ts because the dashboard needs the numbers only,
// and should not load the schema library for them.

/** In characters. */
export const PASSWORD_BOUNDS = { minLength: 8, maxLength: 128 } as const;
