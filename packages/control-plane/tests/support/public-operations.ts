// The operations that a client may call without a credential.

/** Operations that need no credential: the client has none yet, or has lost it. */
export const PUBLIC_OPERATIONS = [
  'signUp',
  'signIn',
  'requestPasswordReset',
  'resetPassword',
  'signInWithOidc',
  'finishOidcSignIn',
  'beginDeviceLogin',
  'pollDeviceLogin',
  'connectTerminal',
];
