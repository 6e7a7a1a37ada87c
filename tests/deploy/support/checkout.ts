// Where the tests find the checkout and the cache.
import path from 'node:path';
import { defaultCache } from '@sandbar/contract/home.ts';

export const CHECKOUT = path.resolve(import.meta.dirname, '../../..');
export const DEPLOY = path.join(CHECKOUT, 'deploy');
export const IS_ROOT = process.getuid?.() === 0;
export const CACHE = path.resolve(defaultCache(process.env, IS_ROOT));
