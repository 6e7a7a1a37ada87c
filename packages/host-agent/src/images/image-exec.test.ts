import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type ImageExec, isImageExec, readImageExec, withImageDefaults, withTerminalDefaults } from './image-exec.ts';

const IMAGE: ImageExec = {
  env: { PATH: '/opt/bin', A: 'image' },
  user: 'app:staff',
  cwd: '/srv',
  entrypoint: ['/entry', '--flag'],
};

describe('a job in a machine of an image', () => {
  test("gets the image's environment, user, working directory and entrypoint", () => {
    assert.deepEqual(withImageDefaults({ argv: ['run'], timeout_sec: 1 }, IMAGE), {
      argv: ['/entry', '--flag', 'run'],
      env: { PATH: '/opt/bin', A: 'image' },
      user: 'app:staff',
      cwd: '/srv',
      timeout_sec: 1,
    });
  });

  test("overrides the image's settings, variable by variable", () => {
    const spec = { argv: ['run'], env: { A: 'job', B: '' }, user: 'root', cwd: '/', timeout_sec: 1 };
    assert.deepEqual(withImageDefaults(spec, IMAGE), {
      ...spec,
      argv: ['/entry', '--flag', 'run'],
      env: { PATH: '/opt/bin', A: 'job', B: '' },
    });
  });

  test('runs a command without the entrypoint', () => {
    const { argv, command } = withImageDefaults({ command: 'echo', timeout_sec: 1 }, IMAGE);
    assert.deepEqual([argv, command], [undefined, 'echo']);
  });

  test('stays unchanged where the image sets nothing', () => {
    const spec = { argv: ['run'], timeout_sec: 1 };
    assert.equal(withImageDefaults(spec, undefined), spec);
    const nothing = { env: {}, user: null, cwd: null, entrypoint: [] };
    assert.deepEqual(withImageDefaults(spec, nothing), { ...spec, env: {} });
  });
});

describe('a terminal in a machine of an image', () => {
  const wanted = { id: 't', cols: 80, rows: 24, env: { A: 'request' }, idle_sec: 600 };
  const open = (params: object, image: ImageExec | undefined) =>
    JSON.parse(withTerminalDefaults(JSON.stringify(params), image));

  test("gets the image's environment, user and working directory, and its shell runs without the entrypoint", () => {
    assert.deepEqual(open(wanted, IMAGE), {
      ...wanted,
      env: { PATH: '/opt/bin', A: 'request' },
      user: 'app:staff',
      cwd: '/srv',
    });
  });

  test('runs a command of its own after the entrypoint, as a user and in a folder of its own', () => {
    const given = { ...wanted, command: ['top'], user: 'root', cwd: '/' };
    assert.deepEqual(open(given, IMAGE), {
      ...given,
      env: { PATH: '/opt/bin', A: 'request' },
      command: ['/entry', '--flag', 'top'],
    });
  });

  test('stays unchanged where the image sets nothing', () => {
    assert.deepEqual(open(wanted, undefined), wanted);
    const nothing = { env: {}, user: null, cwd: null, entrypoint: [] };
    assert.deepEqual(open(wanted, nothing), { ...wanted, user: null, cwd: null });
  });
});

describe('the configuration of an image', () => {
  test('may be empty or have null fields', () => {
    const nothing = { env: {}, user: null, cwd: null, entrypoint: [] };
    for (const config of [{}, { Env: null, User: '', WorkingDir: '', Entrypoint: null }]) {
      assert.deepEqual(readImageExec(config), nothing);
    }
  });

  test('a value may contain "=", a name without it sets nothing, and a relative folder starts at the root', () => {
    const { env, cwd } = readImageExec({ Env: ['A=b=c', 'NONE', '=x', '__proto__=y'], WorkingDir: 'app' });
    assert.deepEqual(Object.entries(env), [
      ['A', 'b=c'],
      ['__proto__', 'y'],
    ]);
    assert.equal(cwd, '/app');
  });

  const damaged: [string, object][] = [
    ['Env', { Env: 'A=b' }],
    ['Env', { Env: ['A=\0'] }],
    ['Env', { Env: [`A=${'x'.repeat(200_000)}`] }],
    ['User', { User: 7 }],
    ['User', { User: 'a\0b' }],
    ['WorkingDir', { WorkingDir: 'x'.repeat(5000) }],
    ['Entrypoint', { Entrypoint: '/bin/sh' }],
    ['Entrypoint', { Entrypoint: [1] }],
  ];
  for (const [name, config] of damaged) {
    test(`a wrong ${name} is refused: ${JSON.stringify(config).slice(0, 40)}`, () => {
      assert.throws(() => readImageExec(config), { name: 'ImageError', message: new RegExp(`"${name}"`) });
    });
  }

  test('is checked again in a manifest', () => {
    assert.ok(isImageExec(IMAGE));
    for (const wrong of [null, {}, { ...IMAGE, env: { A: 1 } }, { ...IMAGE, user: 1 }, { ...IMAGE, entrypoint: 'x' }]) {
      assert.ok(!isImageExec(wrong), JSON.stringify(wrong));
    }
  });
});
