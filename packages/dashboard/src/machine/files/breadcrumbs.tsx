// Links to the shown path and to each folder above it.
import { FileLink } from './file-link.tsx';
import styles from './files.module.css';
import { crumbsOf, type EncodedPath } from './path.ts';

export function Breadcrumbs({ path }: { path: EncodedPath }) {
  const crumbs = crumbsOf(path);
  return (
    <nav aria-label="Path">
      <ol className={styles.crumbs}>
        {crumbs.map((crumb, index) => (
          <li key={crumb.path}>
            <FileLink path={crumb.path} isCurrent={index === crumbs.length - 1}>
              {crumb.name}
            </FileLink>
          </li>
        ))}
      </ol>
    </nav>
  );
}
