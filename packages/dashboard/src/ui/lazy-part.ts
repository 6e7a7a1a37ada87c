// A page, or a part of one, whose script is loaded when it is first shown. While the service does not answer, the part
// waits and then loads. When the script is gone because the service was updated, the router reloads the page once. If
// that does not help, the failed page has a button for it.
import { lazyRouteComponent } from '@tanstack/react-router';

const ASK_AGAIN_MS = 1_000;

/** `load` imports the file, and `name` is the component that it exports. */
export const lazyPart: typeof lazyRouteComponent = (load, name) => lazyRouteComponent(() => loadCode(load), name);

async function loadCode<Module>(load: () => Promise<Module>): Promise<Module> {
  try {
    return await load();
  } catch {
    while (!(await answers())) await new Promise((resolve) => setTimeout(resolve, ASK_AGAIN_MS));
    return load();
  }
}

const answers = (): Promise<boolean> =>
  fetch('/', { method: 'HEAD', cache: 'no-store' }).then(
    ({ ok }) => ok,
    () => false,
  );

/** Whether an error says, in the words of some browser, that a script could not be loaded. */
export const isMissingCode = ({ message }: Error): boolean =>
  /dynamically imported module|Importing a module script failed/.test(message);
