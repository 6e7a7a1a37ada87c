// Removes everything that this browser tab knows about an account. A new document has nothing in memory: no answers of
// the API, no terminals and no uploads.

/** Opens `to`, a path of the dashboard, in a new document, without anything that the account stored in this tab. */
export function startAfresh(to: string): void {
  sessionStorage.clear();
  // Open terminals save their ids when the document ends. This listener was added last, so it runs after theirs.
  globalThis.addEventListener('pagehide', () => sessionStorage.clear());
  location.replace(to);
}
