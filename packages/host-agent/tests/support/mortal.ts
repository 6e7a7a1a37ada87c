// Simulates `kill -9` of an agent in a test. Once the agent's life is over, its calls have no effect, and its promises
// never settle. The objects that it worked on stay unchanged, for the next agent.

export class Life {
  isOver = false;
}

/** A promise that never settles. */
export const never = new Promise<never>(() => {});

/**
 * Wraps an object so that calls of its methods have no effect once `life` is over. Returned values for which `isPart`
 * is true are wrapped in the same way.
 */
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
