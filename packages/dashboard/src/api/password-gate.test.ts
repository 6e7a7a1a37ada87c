// Tests when the operator's pages stop saying that the password is needed.
import assert from 'node:assert/strict';
import { it } from 'node:test';
import { passwordGate } from './password-gate.ts';

it('a closed password dialog is forgotten when a request passes, such as after a confirmation in another tab', async () => {
  const waiting = passwordGate.ask('read', 'password');
  passwordGate.pass();
  assert.equal(passwordGate.state(), 'asking', 'an open dialog stays');
  passwordGate.decline();
  assert.equal(await waiting, false);
  assert.equal(passwordGate.state(), 'declined');
  passwordGate.pass();
  assert.equal(passwordGate.state(), 'idle');
});
