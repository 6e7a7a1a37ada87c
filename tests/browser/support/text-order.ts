// Finds text that a name from a user has reversed or moved. Characters such as U+202E do that unless the page isolates
// the name from the text around it.
import type { Page } from 'playwright-core';

/** Finds what a name that contains `marker` did to the order of the text. Returns one line for each problem. */
export const findDisorder = (page: Page, marker: string): Promise<string[]> =>
  page.evaluate((marker) => {
    const found: string[] = [];
    const rectOf = (node: Node, from: number, to: number): DOMRect => {
      const range = document.createRange();
      range.setStart(node, from);
      range.setEnd(node, to);
      return range.getBoundingClientRect();
    };
    /** The element whose lines the node is in. */
    const blockOf = (node: Node): Element => {
      let element = node.parentElement ?? document.body;
      while (getComputedStyle(element).display === 'inline') element = element.parentElement ?? document.body;
      return element;
    };
    const texts: { node: Text; text: string }[] = [];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) {
      const node = walker.currentNode as Text;
      if (node.data.trim() !== '' && node.parentElement?.getClientRects().length) texts.push({ node, text: node.data });
    }
    for (const { node, text } of texts) {
      if (text.includes(marker)) continue;
      const words = [...text.matchAll(/[A-Za-z]{2,}/g)];
      for (const { index, 0: word } of words) {
        const first = rectOf(node, index, index + 1);
        const last = rectOf(node, index + word.length - 1, index + word.length);
        const isOneLine = first.top === last.top;
        if (isOneLine && first.left > last.left) found.push(`reversed: ${JSON.stringify(text)}`);
      }
    }
    for (const [at, { node, text }] of texts.entries()) {
      if (!text.includes(marker)) continue;
      const name = (node.parentElement as Element).getBoundingClientRect();
      const line = blockOf(node.parentElement?.closest('bdi') ?? node);
      for (const [other, { node: neighbour, text: words }] of texts.entries()) {
        if (other === at || !line.contains(neighbour) || words.includes(marker)) continue;
        const box = rectOf(neighbour, 0, words.length);
        const isBeside = box.top < name.bottom && box.bottom > name.top;
        const isMoved = other < at ? box.left > name.left : box.right < name.right;
        if (isBeside && isMoved) found.push(`moved: ${JSON.stringify(words)} beside ${JSON.stringify(text)}`);
      }
    }
    for (const element of document.querySelectorAll('[title], option')) {
      const text = element.getAttribute('title') ?? element.textContent;
      // A tooltip of only the name has nothing beside it.
      if (/[\u202a-\u202e]/.test(text) && !text.startsWith('<')) found.push(`raw in a tooltip or option: ${text}`);
    }
    return found;
  }, marker);
