// Tests that changes do not cancel a read under way.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { QueryClient, QueryObserver } from '@tanstack/react-query';
import { refreshAfterReads } from './refresh.ts';

const tick = () => new Promise((resolve) => setImmediate(resolve));

test('refresh > changes during a read wait for its end and cause one more read', async () => {
  const client = new QueryClient();
  const answers: ((value: number) => void)[] = [];
  let canceled = 0;
  const observer = new QueryObserver(client, {
    queryKey: ['files', 'm', 'folder'],
    queryFn: ({ signal }) => {
      signal.addEventListener('abort', () => canceled++);
      return new Promise<number>((resolve) => answers.push(resolve));
    },
  });
  const stop = observer.subscribe(() => undefined);
  answers[0]?.(0);
  await tick();
  void observer.refetch();
  const changes = [1, 2, 3].map(() => refreshAfterReads(client, ['files', 'm']));
  await tick();
  assert.equal(answers.length, 2);
  answers[1]?.(1);
  await tick();
  assert.equal(observer.getCurrentResult().data, 1);
  assert.equal(answers.length, 3);
  answers[2]?.(2);
  await Promise.all(changes);
  assert.equal(observer.getCurrentResult().data, 2);
  assert.deepEqual([answers.length, canceled], [3, 0]);
  stop();
  client.clear();
});
