// Leaves the code of the service out of the published CLI. A command that needs this code fails with the message below.
// Such a command only makes sense on the computer of the service, where the checkout has its own `sandbar`.
import path from 'node:path';
import type { Plugin } from 'rolldown';

const LEFT_OUT = /^@sandbar\/(service|host-agent|control-plane)\//;
const SENTENCE =
  'this command runs on the computer of the service: call it as `npx sandbar` in the Sandbar checkout there';

export function withoutService(checkout: string): Plugin {
  const error = path.join(checkout, 'packages', 'cli', 'src', 'arguments.ts');
  return {
    name: 'without-service',
    resolveId: { order: 'pre', filter: { id: LEFT_OUT }, handler: (id) => `\0left-out:${id}` },
    load: {
      filter: { id: /^\0left-out:/ },
      handler: () => ({
        code: `import { UsageError } from ${JSON.stringify(error)}; throw new UsageError(${JSON.stringify(SENTENCE)});`,
        moduleSideEffects: true,
      }),
    },
  };
}
