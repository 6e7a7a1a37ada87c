// A small disk: a file with an ext4 file system, mounted on a folder. It can be filled to the last block at once,
// because allocated blocks need not be written.
import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, openSync, rmSync, statfsSync, truncateSync } from 'node:fs';
import path from 'node:path';

const MIB = 1024 ** 2;

export class SmallDisk {
  readonly #image: string;
  readonly #at: string;
  readonly #filler: string;

  /** Makes the disk in the file `image`, and mounts it on the folder `at`. */
  constructor(image: string, at: string, sizeMib: number) {
    this.#image = image;
    this.#at = at;
    this.#filler = path.join(at, 'filler');
    closeSync(openSync(image, 'w'));
    truncateSync(image, sizeMib * MIB);
    // Without blocks that only root may use, because the host agent is root.
    run('mkfs.ext4', '-q', '-F', '-m', '0', image);
    run('mount', '-o', 'loop', image, at);
  }

  freeBytes(): number {
    const { bavail, bsize } = statfsSync(this.#at);
    return bavail * bsize;
  }

  /** Fills the disk with one file. Blocks that others free later stay free: the file does not grow. */
  fill(): void {
    try {
      run('fallocate', '--length', String(this.freeBytes() + MIB), this.#filler);
    } catch {
      // It took all that there was, and then failed.
    }
  }

  empty(): void {
    rmSync(this.#filler, { force: true });
  }

  /** Unmounts the disk and deletes it. */
  remove(): void {
    run('umount', this.#at);
    if (existsSync(this.#image)) rmSync(this.#image);
  }
}

function run(program: string, ...args: string[]): void {
  execFileSync(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
}
