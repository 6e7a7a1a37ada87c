/**
 * Determines which module files a boot needs and in which order, from the indexes that depmod writes. The guest agent
 * is the only program in the initramfs, so the result is a plain list to load from top to bottom.
 */

export interface ModuleIndex {
  /** Module name to file, relative to the folder of the kernel version. */
  files: ReadonlyMap<string, string>;
  /** Module name to the names of the modules it needs, in the order of modules.dep: deepest dependency last. */
  needs: ReadonlyMap<string, readonly string[]>;
  /** Names of modules compiled into the kernel. */
  builtin: ReadonlySet<string>;
  /** Module name to names that are loaded before it if they exist. They may be aliases such as `crypto-crc32c`. */
  softNeeds: ReadonlyMap<string, readonly string[]>;
  /** Aliases without wildcards, to the modules that provide them. */
  aliases: ReadonlyMap<string, readonly string[]>;
}

/** Returns the name of a module with `_` for `-`, because the kernel treats both as equal. */
export function moduleName(fileOrName: string): string {
  const base = fileOrName.slice(fileOrName.lastIndexOf('/') + 1);
  return base.replace(/\.ko(\.\w+)?$/, '').replaceAll('-', '_');
}

/** Parses modules.dep, modules.builtin, modules.softdep and modules.alias. */
export function parseModuleIndex(text: { dep: string; builtin: string; softdep: string; alias: string }): ModuleIndex {
  const files = new Map<string, string>();
  const needs = new Map<string, string[]>();
  for (const line of contentLines(text.dep)) {
    const [file = '', rest = ''] = line.split(':');
    files.set(moduleName(file), file);
    needs.set(moduleName(file), words(rest).map(moduleName));
  }
  const softNeeds = new Map<string, string[]>();
  for (const line of contentLines(text.softdep)) {
    const [, name = '', ...rest] = words(line);
    const known = softNeeds.get(moduleName(name)) ?? [];
    softNeeds.set(moduleName(name), [...known, ...wordsAfter('pre:', rest)]);
  }
  const aliases = new Map<string, string[]>();
  for (const line of contentLines(text.alias)) {
    const [, alias = '', name = ''] = words(line);
    if (!/[*?[]/.test(alias)) aliases.set(alias, [...(aliases.get(alias) ?? []), moduleName(name)]);
  }
  return { files, needs, builtin: new Set(contentLines(text.builtin).map(moduleName)), softNeeds, aliases };
}

/**
 * Returns the files to load for the modules `roots`, each after the files it needs. Modules compiled into the kernel
 * are left out. Throws when a root module does not exist, because the boot would fail in a less obvious way.
 */
export function orderModules(index: ModuleIndex, roots: readonly string[]): string[] {
  const ordered = new Set<string>();
  const entered = new Set<string>();

  const visit = (name: string): void => {
    if (entered.has(name) || index.builtin.has(name)) return;
    entered.add(name);
    for (const soft of index.softNeeds.get(name) ?? []) {
      const provider = findProvider(index, soft);
      if (provider !== undefined) visit(provider);
    }
    for (const needed of [...(index.needs.get(name) ?? [])].reverse()) visit(needed);
    const file = index.files.get(name);
    if (file !== undefined) ordered.add(file);
  };

  for (const root of roots.map(moduleName)) {
    if (!index.builtin.has(root) && !index.files.has(root)) {
      throw new Error(`the kernel has no module ${root}, neither as a file nor compiled in`);
    }
    visit(root);
  }
  return [...ordered];
}

function findProvider(index: ModuleIndex, name: string): string | undefined {
  const module = moduleName(name);
  if (index.builtin.has(module) || index.files.has(module)) return module;
  const providers = index.aliases.get(name) ?? index.aliases.get(`crypto-${name}`) ?? [];
  return providers.find((provider) => index.builtin.has(provider)) ?? providers[0];
}

function contentLines(text: string): string[] {
  return text.split('\n').filter((line) => line.trim() !== '' && !line.startsWith('#'));
}

function words(text: string): string[] {
  return text.split(/\s+/).filter((word) => word !== '');
}

/** Returns the words between `label` and the next label. Example: `pre: a b post: c`. */
function wordsAfter(label: string, all: readonly string[]): string[] {
  const start = all.indexOf(label);
  if (start === -1) return [];
  const rest = all.slice(start + 1);
  const end = rest.findIndex((word) => word.endsWith(':'));
  return end === -1 ? rest : rest.slice(0, end);
}
