// Tests that the committed types of the API are those of the committed OpenAPI documents.
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { describe, it } from 'node:test';
import { generate, pathOf, SCHEMAS } from './generate.ts';

describe('the types of the API', () => {
  for (const schema of SCHEMAS) {
    it(`${schema.file} is up to date (else: npm run generate -w packages/dashboard)`, async () => {
      const [generated, committed] = await Promise.all([generate(schema), readFile(pathOf(schema), 'utf8')]);
      // A comparison of the whole texts would print thousands of lines.
      const lines = committed.split('\n');
      const changed = generated.split('\n').find((line, index) => line !== lines[index]);
      assert.equal(changed, undefined, 'the first generated line that the file does not have');
      assert.equal(generated.length, committed.length);
    });
  }
});
