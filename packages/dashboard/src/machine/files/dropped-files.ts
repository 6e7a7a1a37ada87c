// The files of a drop or of a file dialog, with those in dropped folders.

/** `name` is the path relative to the drop, such as `photos/2026/a.jpg`. */
export type ChosenFile = { name: string; file: File };

export const chosenFiles = (files: Iterable<File>): ChosenFile[] =>
  Array.from(files, (file) => ({ name: file.name, file }));

/** Must be called in the event of the drop: the browser empties the list of items afterwards. */
export async function droppedFiles({ items, files }: DataTransfer): Promise<ChosenFile[]> {
  const entries = Array.from(items, (item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (entries.length === 0) return chosenFiles(files);
  return (await Promise.all(entries.map((entry) => filesBelow(entry, entry.name)))).flat();
}

async function filesBelow(entry: FileSystemEntry, name: string): Promise<ChosenFile[]> {
  if (isFile(entry)) {
    const file = await new Promise<File>((resolve, reject) => entry.file(resolve, reject));
    return [{ name, file }];
  }
  if (!isFolder(entry)) return [];
  const found: ChosenFile[] = [];
  for (const child of await childrenOf(entry)) found.push(...(await filesBelow(child, `${name}/${child.name}`)));
  return found;
}

// Not `instanceof`: Chromium does not expose the classes under the names of the standard.
const isFile = (entry: FileSystemEntry): entry is FileSystemFileEntry => entry.isFile;
const isFolder = (entry: FileSystemEntry): entry is FileSystemDirectoryEntry => entry.isDirectory;

/** A reader gives the entries of a folder in several batches; the last batch is empty. */
async function childrenOf(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const batch = await new Promise<FileSystemEntry[]>((resolve, reject) => reader.readEntries(resolve, reject));
    if (batch.length === 0) return all;
    all.push(...batch);
  }
}
