// Decides whether the kernel may use huge pages (2 MiB each) for this process and the processes that it starts.
import koffi from 'koffi';

/** From linux/prctl.h. */
const PR_SET_THP_DISABLE = 41;

const prctl = koffi
  .load('libc.so.6')
  .func('int prctl(int option, unsigned long two, unsigned long three, unsigned long four, unsigned long five)');

/**
 * Forbids transparent huge pages, or lets the host's kernel decide about them again. Applies to this process and to
 * every process that it starts afterwards. Throws when the kernel refuses.
 */
export function allowHugePages(isAllowed: boolean): void {
  if (prctl(PR_SET_THP_DISABLE, isAllowed ? 0 : 1, 0, 0, 0) !== 0)
    throw new Error('huge pages cannot be turned on or off (prctl)');
}
