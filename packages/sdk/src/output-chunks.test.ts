import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { mergeChunks, type OutputChunk } from './output-chunks.ts';

const chunk = (stream: 'stdout' | 'stderr', text: string): OutputChunk => ({
  ...{ stream, offset: 0 },
  data: Buffer.from(text),
});

describe('merged streams', () => {
  it('yield chunks in the order of their arrival, and end when all streams have ended', async () => {
    let release = () => {};
    const waiting = new Promise<void>((resolve) => {
      release = resolve;
    });
    async function* late(): AsyncGenerator<OutputChunk> {
      await waiting;
      yield chunk('stderr', 'late');
    }
    async function* early(): AsyncGenerator<OutputChunk> {
      yield chunk('stdout', '1');
      yield chunk('stdout', '2');
      release();
    }
    const texts: string[] = [];
    for await (const { data } of mergeChunks(() => [late(), early()], undefined)) texts.push(`${data}`);
    assert.deepEqual(texts, ['1', '2', 'late']);
  });

  it('end all sources when the caller stops, and when one source fails', async () => {
    let aborted = 0;
    async function* endless(signal: AbortSignal): AsyncGenerator<OutputChunk> {
      yield chunk('stdout', 'x');
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      aborted++;
    }
    async function* failing(): AsyncGenerator<OutputChunk> {
      yield chunk('stderr', 'x');
      throw new Error('broken');
    }
    for await (const _chunk of mergeChunks((signal) => [endless(signal)], undefined)) break;
    assert.equal(aborted, 1);
    const readAll = async () => {
      for await (const _chunk of mergeChunks((signal) => [endless(signal), failing()], undefined));
    };
    await assert.rejects(readAll(), /broken/);
    assert.equal(aborted, 2);
  });

  it('throw the error of a source that fails while the caller still works on a chunk', async () => {
    async function* failing(): AsyncGenerator<OutputChunk> {
      yield chunk('stdout', 'x');
      throw new Error('broken');
    }
    const readSlowly = async () => {
      for await (const _chunk of mergeChunks(() => [failing()], undefined)) await new Promise(setImmediate);
    };
    await assert.rejects(readSlowly(), /broken/);
  });
});
