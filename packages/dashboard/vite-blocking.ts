// Lets the first picture wait for the page's script, which sets the theme. Otherwise a person who chose another theme than
// the system's would see the wrong background for a moment. A script inside the document could also do it, but the
// Content-Security-Policy allows none.
import type { Plugin } from 'vite';

export const blockRendering = (): Plugin => ({
  name: 'block-rendering',
  apply: 'build',
  transformIndexHtml: {
    order: 'post',
    handler: (html) => html.replace('<script type="module"', '<script type="module" blocking="render"'),
  },
});
