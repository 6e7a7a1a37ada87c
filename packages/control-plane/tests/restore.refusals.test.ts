// Tests which failures of a restore are undone. A restore that the host may have carried out must be repeated instead,
// because its undo could leave a machine stopped that was running.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ServiceError } from '@sandbar/contract/errors.ts';
import type { OperationRow } from '../src/db/tables.ts';
import { HostUnavailable } from '../src/hosts/client.ts';
import { RESTORE } from '../src/operations/kinds/restore.ts';

const isRefusal = (error: unknown, attempts: number) => RESTORE.isRefusal?.(error, { attempts } as OperationRow);

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
});
