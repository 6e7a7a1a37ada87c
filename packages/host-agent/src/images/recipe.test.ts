import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { after, before, describe, test } from 'node:test';
import { readImageRecipe, readKernelRecipe, requireRecipe } from './recipe.ts';

const SOURCE_TREE = path.join(import.meta.dirname, '..', '..', '..', '..', 'images');

test('the recipes of the source tree are valid', async () => {
  for (const stack of ['python', 'node']) {
    const { packages, isDefault } = await readImageRecipe(SOURCE_TREE, stack);
    assert.ok(packages.includes('git') && !isDefault, `${stack} has what base has`);
  }
  const image = await readImageRecipe(SOURCE_TREE, 'base');
  assert.equal(image.stack, 'base');
  assert.equal(image.isDefault, true);
  assert.match(image.signingKeys, /BEGIN PGP PUBLIC KEY BLOCK/);
  assert.equal((await readKernelRecipe(SOURCE_TREE)).suite, image.suite);
});

test('a recipe that is none is said, with those that there are', async () => {
  await requireRecipe('python');
  for (const name of ['pyhton', 'kernel', 'keys', '../images/base', '']) {
    await assert.rejects(requireRecipe(name), { name: 'ImageError', message: /only base, node, python$/ });
  }
});

describe('image recipe', () => {
  const valid = {
    stack: 'test',
    description: 'A test',
    revision: '1',
    suite: 'trixie',
    components: ['main'],
    packages: ['bash'],
    min_rootfs_gb: 2,
  };
  let folder: string;
  before(async () => {
    folder = await mkdtemp(path.join(tmpdir(), 'image-recipe-'));
    await mkdir(path.join(folder, 'keys'));
    await mkdir(path.join(folder, 'test'));
    await writeFile(path.join(folder, 'keys', 'trixie.asc'), 'keys');
  });
  after(() => rm(folder, { recursive: true }));

  const write = (recipe: object) => writeFile(path.join(folder, 'test', 'image.json'), JSON.stringify(recipe));

  test('has the mirror of Debian and is not the default unless it says so', async () => {
    await write(valid);
    const recipe = await readImageRecipe(folder, 'test');
    assert.equal(recipe.mirror, 'http://deb.debian.org/debian');
    assert.equal(recipe.isDefault, false);
  });

  test("one that extends another adds its packages to the other's, and is not the default because that one is", async () => {
    await mkdir(path.join(folder, 'child'), { recursive: true });
    await write({ ...valid, default: true });
    const child = { stack: 'child', description: 'Another', extends: 'test', packages: ['bash', 'zsh'] };
    await writeFile(path.join(folder, 'child', 'image.json'), JSON.stringify(child));
    const recipe = await readImageRecipe(folder, 'child');
    assert.deepEqual(recipe.packages, ['bash', 'zsh']);
    assert.deepEqual([recipe.stack, recipe.suite, recipe.isDefault], ['child', 'trixie', false]);
    assert.equal(recipe.parentFolder, path.join(folder, 'test'));
    await write({ ...valid, extends: 'child' });
    await assert.rejects(readImageRecipe(folder, 'child'), /test\/image\.json needs nothing.* in "extends"/);
  });

  test('one without a stack of its own is refused, and does not take the place of the one that it extends', async () => {
    await mkdir(path.join(folder, 'child'), { recursive: true });
    await write(valid);
    for (const [stack, needed] of [
      [undefined, 'a text'],
      ['test', '"child", the name of its folder,'],
    ] as const) {
      const child = { stack, description: 'Another', extends: 'test', packages: [] };
      await writeFile(path.join(folder, 'child', 'image.json'), JSON.stringify(child));
      const message = `The image recipe ${folder}/child/image.json needs ${needed} in "stack"`;
      await assert.rejects(readImageRecipe(folder, 'child'), { name: 'ImageError', message });
    }
  });

  const wrong: [string, object][] = [
    ['stack', { ...valid, stack: undefined }],
    ['description', { ...valid, description: '' }],
    ['packages', { ...valid, packages: ['bash', '--option'] }],
    ['packages', { ...valid, packages: ['../../etc'] }],
    ['suite', { ...valid, suite: 'trixie; rm' }],
    ['min_rootfs_gb', { ...valid, min_rootfs_gb: 0.5 }],
  ];
  for (const [field, recipe] of wrong) {
    test(`a wrong ${field} is named with the file: ${JSON.stringify(Reflect.get(recipe, field))}`, async () => {
      await write(recipe);
      await assert.rejects(readImageRecipe(folder, 'test'), new RegExp(`test/image\\.json needs .* in "${field}"`));
    });
  }

  test('one that does not exist is an error that names the file', async () => {
    await assert.rejects(readImageRecipe(folder, 'gone'), /gone\/image\.json does not exist/);
  });
});
