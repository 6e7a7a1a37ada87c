// A link that opens a folder or a file in the tab "files".
import { Link } from '@tanstack/react-router';
import { visibleText } from '../../ui/visible-text.ts';
import type { EncodedPath } from './path.ts';

type Props = { path: EncodedPath; isCurrent?: boolean; children: string };

export function FileLink({ path, isCurrent = false, children }: Props) {
  return (
    <Link
      from="/machines/$machineId"
      to="."
      search={{ tab: 'files', path }}
      preload={false}
      aria-current={isCurrent ? 'page' : undefined}
    >
      <bdi>{visibleText(children)}</bdi>
    </Link>
  );
}
