// The pages of the dashboard in the order of the navigation. The command palette finds the same pages.
const PAGE_GROUPS = [
  {
    label: 'Compute',
    pages: [
      { to: '/machines', label: 'Machines' },
      { to: '/volumes', label: 'Volumes' },
      { to: '/snapshots', label: 'Snapshots' },
      { to: '/images', label: 'Images' },
      { to: '/activity', label: 'Activity' },
    ],
  },
  {
    label: 'Account',
    pages: [
      { to: '/api-keys', label: 'API keys' },
      { to: '/quotas', label: 'Quotas' },
      { to: '/billing', label: 'Billing' },
      { to: '/account', label: 'Account' },
    ],
  },
  {
    label: 'Operator',
    pages: [
      { to: '/accounts', label: 'Accounts' },
      { to: '/hosts', label: 'Hosts' },
      { to: '/health', label: 'Health' },
    ],
  },
] as const;

export type Page = (typeof PAGE_GROUPS)[number]['pages'][number];
type PageGroup = { label: string; pages: readonly Page[] };

/** The groups that a person sees: the operator's pages only for the operator. */
export const pageGroups = (isOperator: boolean): readonly PageGroup[] =>
  PAGE_GROUPS.filter(({ label }) => isOperator || label !== 'Operator');
