// Lets xterm.js run under a Content-Security-Policy without 'unsafe-inline'. Its renderer writes text into <style>
// elements and sets the attribute `style` of spans, and the policy forbids both. The policy allows the same styles when
// a script sets them as objects: constructed style sheets, and element.style.
//
// xterm's option `documentOverride` is not enough: version 6.0 makes its spans and one of its <style> elements with the
// page's own document all the same.

/**
 * Calls `open`, in which xterm makes all its <style> elements. Instead of those it gets elements whose text becomes the
 * content of a style sheet of the page. Returns a function that removes the sheets.
 */
export function openWithSheets(open: () => void): () => void {
  HTMLSpanElement.prototype.setAttribute = setAttribute;
  const sheets: CSSStyleSheet[] = [];
  const createElement = (name: string, options?: ElementCreationOptions): HTMLElement =>
    name === 'style' ? createSheetElement(sheets) : Document.prototype.createElement.call(document, name, options);
  Object.defineProperty(document, 'createElement', { value: createElement, configurable: true });
  try {
    open();
  } finally {
    Reflect.deleteProperty(document, 'createElement');
  }
  return () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((sheet) => !sheets.includes(sheet));
  };
}

/** An element that shows nothing. Its text becomes the content of a style sheet. */
function createSheetElement(sheets: CSSStyleSheet[]): HTMLElement {
  const sheet = new CSSStyleSheet();
  sheets.push(sheet);
  document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
  const element = Document.prototype.createElement.call(document, 'template');
  Object.defineProperty(element, 'textContent', { set: (css: string) => sheet.replaceSync(css) });
  return element;
}

/** Sets the attribute `style` as an object, and every other attribute as usual. The result is the same. */
function setAttribute(this: HTMLSpanElement, name: string, value: string): void {
  if (name === 'style') this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
}
