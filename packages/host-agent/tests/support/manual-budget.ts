// A guest's work budget whose clock the test moves.
import { WorkBudget } from '../../src/guest/work-budget.ts';

export class ManualBudget {
  readonly budget: WorkBudget;
  #now = 0;
  #endWait: (() => void) | undefined;
  readonly #onWait: (() => void)[] = [];

  constructor() {
    const wait = () => {
      this.#onWait.shift()?.();
      return new Promise<void>((resolve) => {
        this.#endWait = resolve;
      });
    };
    this.budget = new WorkBudget({ now: () => this.#now, wait });
  }

  /** Resolves the next time that the host waits because the budget is used up. */
  used(): Promise<void> {
    return new Promise((resolve) => void this.#onWait.push(resolve));
  }

  /** Lets a second pass and ends the host's wait. */
  passSecond(): void {
    this.#now += 1000;
    this.#endWait?.();
  }
}
