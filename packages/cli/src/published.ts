// The entry of the CLI in the npm package. It runs on every Node that the package supports. bin/sandbar.mjs is the
// entry in the checkout, and first starts a newer Node if necessary.
import { main } from './main.ts';

await main(process.argv.slice(2));
