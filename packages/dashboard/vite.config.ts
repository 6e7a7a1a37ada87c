// Builds the dashboard. File names have a hash of their content, so that browsers may keep them for ever.
import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';
import { blockRendering } from './vite-blocking.ts';
import { compress } from './vite-compress.ts';

/** Where `vite dev` finds the API. */
const API = process.env.SANDBAR_BASE_URL ?? 'http://127.0.0.1:7070';

// biome-ignore lint/style/noDefaultExport: Vite reads the default export.
export default defineConfig({
  plugins: [react(), blockRendering(), compress()],
  build: {
    target: 'es2023',
    // The Content-Security-Policy allows no data: URLs in scripts and styles.
    assetsInlineLimit: 0,
    // One style sheet, loaded with the page. A part that is loaded later is one script, which can be asked for again after
    // a failure; Vite would ask for a style sheet of its own only once.
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
  },
  server: { proxy: { '/v1': { target: API, ws: true }, '/admin/v1': API, '/docs': API, '/openapi.json': API } },
});
