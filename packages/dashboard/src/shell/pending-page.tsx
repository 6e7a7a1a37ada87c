// Shown while the script of a page takes longer than a moment to load, for example because the service does not answer.
export function PendingPage() {
  return <p role="status">Loading the page…</p>;
}
