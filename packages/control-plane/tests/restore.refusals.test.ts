// Tests which failures of a restore are undone. A restore that the host may have carried out must be repeated instead,
// because its undo could leave a machine stopped that was running.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import { HostUnavailable } from '../src/hosts/client.ts';
import type { Work } from '../src/operations/definition.ts';
import { RESTORE } from '../src/operations/kinds/restore.ts';

const isRefusal = (error: unknown, attempts: number, progress?: Work['progress']) =>
  RESTORE.isRefusal?.(error, { operation: { attempts }, ...(progress && { progress }) } as Work);

describe('a restore', () => {
  it('that reached no host is refused at its first attempt', () => {
    assert.equal(isRefusal(new HostUnavailable(false), 1), true);
  });

  it('that reached no host goes on after an earlier attempt, which may have gone back', () => {
    assert.equal(isRefusal(new HostUnavailable(false), 2), false);
  });

  it('that got no answer goes on', () => {
    for (const attempts of [1, 2]) assert.equal(isRefusal(new HostUnavailable(true), attempts), false);
  });

  it('that the host refused is refused at any attempt', () => {
    const refused = new ServiceError('fleet_capacity', 'The disk of the host is full.');
    for (const attempts of [1, 2]) assert.equal(isRefusal(refused, attempts), true);
  });

  it('that the host has done goes on, whatever fails then', () => {
    const errors = [
      new HostUnavailable(false),
      new ServiceError('internal_error', 'It failed.'),
      new TypeError('a bug'),
    ];
    for (const error of errors) assert.equal(isRefusal(error, 1, 'done by the host'), false);
  });

  it('that a bug ends is refused only if the host was never asked', () => {
    assert.equal(isRefusal(new TypeError('a bug'), 1), true);
    assert.equal(isRefusal(new TypeError('a bug'), 1, 'asked the host'), false);
    assert.equal(isRefusal(new TypeError('a bug'), 2), false);
  });
});
