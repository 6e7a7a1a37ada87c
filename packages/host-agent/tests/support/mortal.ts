// An agent's hands in a test: once its life is over, nothing that it still does has an effect and nothing that it waits for
// ever comes, as after kill -9. What it worked on stays as it is, for the next agent.

export class Life {
  isOver = false;
}

/** Never settles. */
export const never = new Promise<never>(() => {});

/** `target` in the hands of an agent. `isPart`: what its methods return and the same holds for. */
export function mortal<T extends object>(target: T, life: Life, isPart: (value: unknown) => value is object): T {
  const wrap = (value: unknown): unknown => {
    if (Array.isArray(value)) return value.map(wrap);
    return isPart(value) ? mortal(value, life, isPart) : value;
  };
  const follow = (promise: Promise<unknown>) =>
    promise.then(
      (value) => (life.isOver ? never : wrap(value)),
      (error) => (life.isOver ? never : Promise.reject(error)),
    );
  return new Proxy(target, {
    get(_, name) {
      const value: unknown = Reflect.get(target, name, target);
      if (value instanceof Promise) return follow(value);
      if (typeof value !== 'function') return value;
      return (...args: unknown[]) => {
        if (life.isOver) return never;
        const result: unknown = value.apply(target, args);
        return result instanceof Promise ? follow(result) : wrap(result);
      };
    },
  });
}
