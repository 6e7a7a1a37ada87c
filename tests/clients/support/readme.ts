// Runs the TypeScript example of a package's README as a reader would, in its own process.
import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { CHECKOUT, readExamples } from './doc-examples.ts';

/**
 * Resolves when the example has succeeded and has printed the lines that its comments announce. The caller may await the
 * promise later: a rejection before that does not end the process.
 */
export function runReadme(readme: string): Promise<void> {
  const run = runExample(readme);
  run.catch(() => undefined);
  return run;
}

async function runExample(readme: string): Promise<void> {
  const { examples, problems } = readExamples(readme);
  const example = examples.find(({ language }) => language === 'ts') ?? assert.fail(`${readme} has no example`);
  assert.deepEqual(problems, []);
  assert(example.prints.length > 0, `${readme} does not say what its example prints`);
  const output = await runProgram(example.text);
  for (const line of example.prints) assert(output.includes(line), `not printed: ${line}\n${output}`);
}

function runProgram(program: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const options = ['--input-type=module-typescript', '-'];
    const child = execFile(process.execPath, options, { cwd: CHECKOUT }, (error, stdout, stderr) => {
      if (error) reject(new Error(`${error.message}\n${stderr}`));
      else resolve(stdout);
    });
    child.stdin?.end(program);
  });
}
