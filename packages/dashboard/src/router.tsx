// The routes of the dashboard. Each page is a chunk of its own that is loaded when the page is opened.
import { createRootRouteWithContext, createRoute, createRouter, redirect } from '@tanstack/react-router';
import { activitySearch } from './activity/activity-search.ts';
import { queryClient } from './api/query-client.ts';
import { apiKeysSearch } from './api-keys/api-keys-search.ts';
import { billingSearch } from './billing/billing-search.ts';
import { deviceSearch } from './device/device-search.ts';
import { machinePageSearch } from './machine/search.ts';
import { machineSearch } from './machines/search.ts';
import { accountsSearch } from './operator/accounts-search.ts';
import { accountQuery } from './session/session.ts';
import { FailedFrame, FailedPage } from './shell/failed-page.tsx';
import { PendingPage } from './shell/pending-page.tsx';
import { Shell } from './shell/shell.tsx';
import { UnknownAddress, UnknownPage } from './shell/unknown-page.tsx';
import { lazyPart } from './ui/lazy-part.ts';
import { noSearch } from './ui/no-search.ts';
import { volumesSearch } from './volumes/volumes-search.ts';

const root = createRootRouteWithContext()({ errorComponent: FailedFrame, notFoundComponent: UnknownAddress });

/**
 * The path to return to after the sign-in. Only paths of this origin are taken, so that a link cannot lead elsewhere.
 */
const readReturn = (search: Record<string, unknown>): { to?: string } =>
  typeof search.to === 'string' && /^\/(?![/\\])/.test(search.to) ? { to: search.to } : {};

const signIn = createRoute({
  getParentRoute: () => root,
  path: '/sign-in',
  validateSearch: readReturn,
  component: lazyPart(() => import('./session/sign-in-page.tsx'), 'SignInPage'),
});

/** The link in the mail of a forgotten password leads here, with a token in the fragment. */
const resetPassword = createRoute({
  getParentRoute: () => root,
  path: '/reset-password',
  component: lazyPart(() => import('./session/reset-password-page.tsx'), 'ResetPasswordPage'),
});

/** Everything below needs a session. Without one, the browser goes to the sign-in page and then back. */
const signedIn = createRoute({
  getParentRoute: () => root,
  id: 'signed-in',
  component: Shell,
  errorComponent: FailedFrame,
  beforeLoad: async ({ location }) => {
    const account = await queryClient.ensureQueryData(accountQuery);
    if (!account) throw redirect({ to: '/sign-in', search: { to: location.href } });
  },
});

const home = createRoute({
  getParentRoute: () => signedIn,
  path: '/',
  beforeLoad: () => {
    throw redirect({ to: '/machines', search: {} });
  },
});

const machines = createRoute({
  getParentRoute: () => signedIn,
  path: '/machines',
  validateSearch: machineSearch,
  component: lazyPart(() => import('./machines/machines-page.tsx'), 'MachinesPage'),
});

const machine = createRoute({
  getParentRoute: () => signedIn,
  path: '/machines/$machineId',
  validateSearch: machinePageSearch,
  component: lazyPart(() => import('./machine/machine-page.tsx'), 'MachinePage'),
});

const volumes = createRoute({
  getParentRoute: () => signedIn,
  path: '/volumes',
  validateSearch: volumesSearch,
  component: lazyPart(() => import('./volumes/volumes-page.tsx'), 'VolumesPage'),
});

const snapshots = createRoute({
  getParentRoute: () => signedIn,
  path: '/snapshots',
  validateSearch: noSearch,
  component: lazyPart(() => import('./snapshots/snapshots-page.tsx'), 'SnapshotsPage'),
});

const images = createRoute({
  getParentRoute: () => signedIn,
  path: '/images',
  validateSearch: noSearch,
  component: lazyPart(() => import('./images/images-page.tsx'), 'ImagesPage'),
});

const apiKeys = createRoute({
  getParentRoute: () => signedIn,
  path: '/api-keys',
  validateSearch: apiKeysSearch,
  component: lazyPart(() => import('./api-keys/api-keys-page.tsx'), 'ApiKeysPage'),
});

const activity = createRoute({
  getParentRoute: () => signedIn,
  path: '/activity',
  validateSearch: activitySearch,
  component: lazyPart(() => import('./activity/activity-page.tsx'), 'ActivityPage'),
});

const quotas = createRoute({
  getParentRoute: () => signedIn,
  path: '/quotas',
  validateSearch: noSearch,
  component: lazyPart(() => import('./quotas/quotas-page.tsx'), 'QuotasPage'),
});

const billing = createRoute({
  getParentRoute: () => signedIn,
  path: '/billing',
  validateSearch: billingSearch,
  component: lazyPart(() => import('./billing/billing-page.tsx'), 'BillingPage'),
});

const account = createRoute({
  getParentRoute: () => signedIn,
  path: '/account',
  validateSearch: noSearch,
  component: lazyPart(() => import('./account/account-page.tsx'), 'AccountPage'),
});

/** `sandbar login` sends people here, so no other page links to it. */
const device = createRoute({
  getParentRoute: () => signedIn,
  path: '/device',
  validateSearch: deviceSearch,
  component: lazyPart(() => import('./device/device-page.tsx'), 'DevicePage'),
});

/** The pages of the operator. */
const operator = createRoute({
  getParentRoute: () => signedIn,
  id: 'operator',
  component: lazyPart(() => import('./operator/operator-frame.tsx'), 'OperatorFrame'),
});

const accounts = createRoute({
  getParentRoute: () => operator,
  path: '/accounts',
  validateSearch: accountsSearch,
  component: lazyPart(() => import('./operator/accounts-page.tsx'), 'AccountsPage'),
});

const hosts = createRoute({
  getParentRoute: () => operator,
  path: '/hosts',
  validateSearch: noSearch,
  component: lazyPart(() => import('./operator/hosts-page.tsx'), 'HostsPage'),
});

const health = createRoute({
  getParentRoute: () => operator,
  path: '/health',
  validateSearch: noSearch,
  component: lazyPart(() => import('./operator/health-page.tsx'), 'HealthPage'),
});

export const router = createRouter({
  routeTree: root.addChildren([
    signIn,
    resetPassword,
    signedIn.addChildren([
      home,
      machines,
      machine,
      volumes,
      snapshots,
      images,
      apiKeys,
      activity,
      quotas,
      billing,
      account,
      device,
      operator.addChildren([accounts, hosts, health]),
    ]),
  ]),
  // The router removes parameters that validateSearch drops, also from the URL. Without this, pages would get them too.
  search: { strict: true },
  defaultPreload: 'intent',
  defaultPendingComponent: PendingPage,
  defaultErrorComponent: FailedPage,
  defaultNotFoundComponent: UnknownPage,
});

declare module '@tanstack/react-router' {
  interface Register {
    router: typeof router;
  }
}
