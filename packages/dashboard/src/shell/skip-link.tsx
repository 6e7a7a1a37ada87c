// The first thing that Tab reaches: it moves the focus past the navigation.
import styles from './skip-link.module.css';

/** The id of the element with the page's content. */
export const CONTENT_ID = 'content';

/** It is a button and not a link to the element, because a link would change the URL. */
export function SkipLink() {
  return (
    <button type="button" className={styles.skip} onClick={() => document.getElementById(CONTENT_ID)?.focus()}>
      Skip to the content
    </button>
  );
}
