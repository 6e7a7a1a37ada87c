/**
 * Reads image recipes. People edit them by hand, so every field is checked before anything is downloaded, and an error
 * names the file and the field.
 */
import { existsSync } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import path from 'node:path';
import { hasErrorCode, ImageError } from './image-error.ts';

export interface ImageRecipe {
  folder: string;
  /** The folder of the recipe that this one extends. Its files are laid over the root first. */
  parentFolder: string | undefined;
  stack: string;
  description: string;
  isDefault: boolean;
  /** A text that people change to build with newer packages of the same suite. */
  revision: string;
  suite: string;
  components: string[];
  /** The mirror in the package sources of the finished image. */
  mirror: string;
  packages: string[];
  minRootfsGb: number;
  signingKeys: string;
}

export interface KernelRecipe {
  revision: string;
  suite: string;
  components: string[];
  package: string;
  bootModules: string[];
  excludedModules: string[];
  signingKeys: string;
}

/** The recipes of the source tree. */
export const RECIPES = path.join(import.meta.dirname, '..', '..', '..', '..', 'images');
export const DEFAULT_MIRROR = 'http://deb.debian.org/debian';

/**
 * Reads `<recipesDir>/<stack>/image.json`; throws ImageError when it is missing or a field is wrong. A recipe that
 * `extends` a parent recipe adds its packages and files to the parent's, and inherits the fields that it leaves out. It
 * never inherits `stack`, because its image would then replace the parent's image.
 */
export async function readImageRecipe(recipesDir: string, stack: string): Promise<ImageRecipe> {
  const folder = path.join(recipesDir, stack);
  const own = await RecipeFields.read(path.join(folder, 'image.json'));
  const parent = own.optional('extends', 'string') === undefined ? undefined : own.name('extends');
  const parentFolder = parent === undefined ? undefined : path.join(recipesDir, parent);
  const fields =
    parentFolder === undefined ? own : own.over(await RecipeFields.read(path.join(parentFolder, 'image.json')));
  const suite = fields.name('suite');
  return {
    folder,
    parentFolder,
    stack: own.folderName('stack'),
    description: fields.text('description'),
    isDefault: fields.optional('default', 'boolean') ?? false,
    revision: fields.text('revision'),
    suite,
    components: fields.names('components'),
    mirror: fields.optional('mirror', 'string') ?? DEFAULT_MIRROR,
    packages: fields.names('packages'),
    minRootfsGb: fields.positiveInteger('min_rootfs_gb'),
    signingKeys: await readSigningKeys(recipesDir, suite),
  };
}

/** Throws ImageError when there is no such recipe; the message lists the existing recipes. */
export async function requireRecipe(stack: string, recipesDir = RECIPES): Promise<void> {
  const folders = await readdir(recipesDir);
  const recipes = folders.filter((name) => existsSync(path.join(recipesDir, name, 'image.json'))).sort();
  if (recipes.includes(stack)) return;
  throw new ImageError(`There is no recipe "${stack}" in ${recipesDir}, only ${recipes.join(', ')}`);
}

/** Reads `<recipesDir>/kernel/kernel.json`; throws ImageError when it is missing or a field is wrong. */
export async function readKernelRecipe(recipesDir: string): Promise<KernelRecipe> {
  const fields = await RecipeFields.read(path.join(recipesDir, 'kernel', 'kernel.json'));
  const suite = fields.name('suite');
  return {
    revision: fields.text('revision'),
    suite,
    components: fields.names('components'),
    package: fields.name('package'),
    bootModules: fields.names('boot_modules'),
    excludedModules: fields.names('excluded_modules'),
    signingKeys: await readSigningKeys(recipesDir, suite),
  };
}

async function readSigningKeys(recipesDir: string, suite: string): Promise<string> {
  return readRecipeFile(path.join(recipesDir, 'keys', `${suite}.asc`));
}

async function readRecipeFile(file: string): Promise<string> {
  return readFile(file, 'utf8').catch((error: unknown) => {
    if (!hasErrorCode(error, 'ENOENT')) throw error;
    throw new ImageError(
      `The image recipe ${file} does not exist; it is part of the source tree, so restore it from there`,
    );
  });
}

/**
 * Names become arguments of commands and parts of paths, so characters with a special meaning in a command or a path
 * are not allowed.
 */
const NAME = /^[a-z0-9][a-z0-9+._/-]*$/;

class RecipeFields {
  readonly #file: string;
  readonly #values: Record<string, unknown>;

  private constructor(file: string, values: Record<string, unknown>) {
    this.#file = file;
    this.#values = values;
  }

  static async read(file: string): Promise<RecipeFields> {
    const text = await readRecipeFile(file);
    let values: unknown;
    try {
      values = JSON.parse(text);
    } catch (error) {
      throw new ImageError(`The image recipe ${file} is not JSON: ${String(error)}`);
    }
    if (typeof values !== 'object' || values === null)
      throw new ImageError(`The image recipe ${file} is not an object`);
    return new RecipeFields(file, { ...values });
  }

  /**
   * Returns these fields, the fields of `parent` that are missing here, and the packages of both. `default` is not
   * inherited.
   */
  over(parent: RecipeFields): RecipeFields {
    if (parent.#values.extends !== undefined) throw parent.#wrong('extends', 'nothing, since others extend it,');
    const packages = [...new Set([...parent.names('packages'), ...this.names('packages')])];
    return new RecipeFields(this.#file, { ...parent.#values, default: false, ...this.#values, packages });
  }

  text(field: string): string {
    const value = this.#values[field];
    if (typeof value === 'string' && value !== '') return value;
    throw this.#wrong(field, 'a text');
  }

  name(field: string): string {
    const value = this.text(field);
    if (isName(value)) return value;
    throw this.#wrong(field, 'a name in lower case');
  }

  /** Returns a field whose value must be the name of the recipe's folder. */
  folderName(field: string): string {
    const folder = path.basename(path.dirname(this.#file));
    if (this.name(field) === folder) return folder;
    throw this.#wrong(field, `"${folder}", the name of its folder,`);
  }

  names(field: string): string[] {
    const value = this.#values[field];
    if (Array.isArray(value) && value.every(isName)) return value;
    throw this.#wrong(field, 'a list of names in lower case');
  }

  positiveInteger(field: string): number {
    const value = this.#values[field];
    if (typeof value === 'number' && Number.isInteger(value) && value > 0) return value;
    throw this.#wrong(field, 'a whole number above 0');
  }

  optional(field: string, type: 'string'): string | undefined;
  optional(field: string, type: 'boolean'): boolean | undefined;
  optional(field: string, type: 'string' | 'boolean'): string | boolean | undefined {
    const value = this.#values[field];
    if (value === undefined) return undefined;
    if ((typeof value === 'string' || typeof value === 'boolean') && typeof value === type) return value;
    throw this.#wrong(field, `a ${type}`);
  }

  #wrong(field: string, wanted: string): ImageError {
    return new ImageError(`The image recipe ${this.#file} needs ${wanted} in "${field}"`);
  }
}

function isName(value: unknown): value is string {
  return typeof value === 'string' && NAME.test(value) && !value.includes('..');
}
