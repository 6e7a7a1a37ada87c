// In a file of its own, since every part of the configuration throws it.

/** A variable of the environment that cannot be used; the message says which and why. */
export class ConfigError extends Error {}
