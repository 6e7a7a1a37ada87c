// In a separate file to avoid a circular import: config.ts and auth/config.ts both throw this error.

/** An environment variable has an invalid value. The message names the variable and the reason. */
export class ConfigError extends Error {}
