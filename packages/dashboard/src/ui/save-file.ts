// Lets the browser save content that the page has in memory as a file.
export function saveFile(content: Blob, name: string): void {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  // The browser begins to read the blob after this task.
  setTimeout(() => URL.revokeObjectURL(link.href), 60_000);
}
