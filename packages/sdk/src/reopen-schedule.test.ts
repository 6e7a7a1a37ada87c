import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ConnectionError } from './errors.ts';
import { ReopenSchedule } from './reopen-schedule.ts';

const broken = new ConnectionError('http://x', new Error('broken'));

describe('a stream that breaks', () => {
  it('is opened again until the time for retries is over, counted from the first break', async () => {
    let now = 0;
    const schedule = new ReopenSchedule(60_000, () => now);
    await schedule.wait(broken, undefined);
    now = 59_000;
    await schedule.wait(broken, undefined);
    now = 60_000;
    await assert.rejects(schedule.wait(broken, undefined), broken);
  });

  it('gets the whole time again after data, and after a connection that stayed open with only heartbeats', async () => {
    let now = 0;
    const schedule = new ReopenSchedule(60_000, () => now);
    await schedule.wait(broken, undefined);
    now = 59_000;
    schedule.noteProgress();
    now = 100_000;
    await schedule.wait(broken, undefined);
    schedule.noteOpen();
    now = 400_000;
    await schedule.wait(broken, undefined);
    schedule.noteOpen();
    now = 700_000;
    await schedule.wait(broken, undefined);
  });

  it('is given up when the time is over and each connection has closed at once', async () => {
    let now = 0;
    const schedule = new ReopenSchedule(60_000, () => now);
    await schedule.wait(broken, undefined);
    schedule.noteOpen();
    now = 60_000 - 1;
    schedule.noteOpen();
    now = 60_000;
    await assert.rejects(schedule.wait(broken, undefined), broken);
  });

  it('is not opened again after another error', async () => {
    const other = new Error('other');
    await assert.rejects(new ReopenSchedule(60_000).wait(other, undefined), other);
  });
});
