// The addresses of the dashboard's pages. The control plane serves the same document at each of them; the dashboard's
// router decides in the browser what to show.

/** First parts of the pages' paths. A page may have more parts, such as `/machines/ID`. */
export const DASHBOARD_PAGES = [
  'sign-in',
  'reset-password',
  'device',
  'machines',
  'volumes',
  'snapshots',
  'images',
  'api-keys',
  'activity',
  'quotas',
  'billing',
  'account',
  'accounts',
  'hosts',
  'health',
] as const;
