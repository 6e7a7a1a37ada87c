/**
 * The program that inspects a layout; it runs confined. Arguments: the layout's folder, then the limits as JSON. Prints
 * a LayoutReport, or `{"refusal": "…"}` when the image must not be imported.
 */
import { inspectLayout } from './inspect-layout.ts';
import { Refusal } from './refusal.ts';

const [folder = '', limits = ''] = process.argv.slice(2);
try {
  console.log(JSON.stringify(await inspectLayout(folder, JSON.parse(limits))));
} catch (error) {
  if (!(error instanceof Refusal)) throw error;
  console.log(JSON.stringify({ refusal: error.message }));
}
