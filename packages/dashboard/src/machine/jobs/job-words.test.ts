// Tests the texts for a job's state and times.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endSentence, formatDuration, runtimeMs, statusTone, statusWords } from './job-words.ts';

test("job words > a job's end names its code, signal or cause", () => {
  const ends = [
    { status: 'running', exit_code: null, signal: null },
    { status: 'exited', exit_code: 0, signal: null },
    { status: 'exited', exit_code: 3, signal: null },
    { status: 'exited', exit_code: null, signal: 'SIGKILL' },
    { status: 'timed_out', exit_code: null, signal: 'SIGTERM' },
    { status: 'canceled', exit_code: null, signal: 'SIGTERM' },
    { status: 'lost', exit_code: null, signal: null },
  ] as const;
  assert.deepEqual(ends.map(statusWords), [
    'running',
    'exited 0',
    'exited 3',
    'killed by SIGKILL',
    'timed out',
    'cancelled',
    'lost',
  ]);
  assert.deepEqual(ends.map(statusTone), ['wait', 'good', 'bad', 'bad', 'bad', 'quiet', 'bad']);
  assert.deepEqual(ends.map(endSentence), [
    undefined,
    'The command ended with code 0.',
    'The command ended with code 3.',
    'The command was ended by SIGKILL.',
    'The job reached its timeout and was ended by SIGTERM.',
    'The job was cancelled and ended by SIGTERM.',
    'The machine stopped or died while the job was running.',
  ]);
});

test('job words > durations have a fitting unit', () => {
  assert.deepEqual([-5, 420, 9_960, 59_400, 185_000, 7_800_000].map(formatDuration), [
    '0.0 s',
    '0.4 s',
    '10 s',
    '59 s',
    '3 min 5 s',
    '2 h 10 min',
  ]);
});

test('job words > a running job has run until now', () => {
  const created_at = '2026-01-01T00:00:00.000Z';
  assert.equal(runtimeMs({ created_at, finished_at: null }, Date.parse(created_at) + 7), 7);
  assert.equal(runtimeMs({ created_at, finished_at: '2026-01-01T00:00:02.000Z' }, 0), 2_000);
});
