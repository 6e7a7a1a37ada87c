// The terminal of a machine's page, as a person uses it: types, reads the screen, looks at the line above it.
import assert from 'node:assert/strict';
import type { Page } from 'playwright-core';
import { until } from '../../e2e/support/service.ts';

export const terminalPath = (machineId: string): string => `/machines/${machineId}?tab=terminal`;

export class TerminalView {
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  /** Opens the page and waits for the prompt of the shell. */
  static async open(page: Page, machineId: string): Promise<TerminalView> {
    const view = new TerminalView(page);
    await page.goto(terminalPath(machineId));
    await view.isReady();
    return view;
  }

  async isReady(): Promise<void> {
    await this.says('Connected.');
    await this.shows(/[#$] ?$/);
  }

  /** Opens one more terminal and waits for the prompt of its shell. */
  async openAnother(): Promise<void> {
    const tabs = this.page.getByRole('tab');
    const before = await tabs.count();
    await this.page.getByRole('button', { name: 'New terminal' }).click();
    await tabs
      .nth(before)
      .and(this.page.getByRole('tab', { selected: true }))
      .waitFor();
    await this.isReady();
  }

  /** Waits for a text in the line above the screen. */
  says(text: string | RegExp): Promise<void> {
    return this.page.getByRole('tabpanel').getByRole('status').filter({ hasText: text }).waitFor();
  }

  async focus(): Promise<void> {
    await this.page.getByRole('textbox', { name: 'Terminal input' }).focus();
  }

  async type(text: string): Promise<void> {
    await this.focus();
    await this.page.keyboard.type(text);
  }

  async run(command: string): Promise<void> {
    await this.type(command);
    await this.page.keyboard.press('Enter');
  }

  /** Puts a text into the clipboard and pastes it by keyboard. */
  async paste(text: string): Promise<void> {
    await this.page.context().grantPermissions(['clipboard-read', 'clipboard-write']);
    await this.page.evaluate((copied) => navigator.clipboard.writeText(copied), text);
    await this.focus();
    await this.page.keyboard.press('Control+V');
  }

  /** The rows of the screen that is shown, without spaces at their ends. */
  async rows(): Promise<string[]> {
    const rows = await this.page.locator('.xterm-rows:visible > div').allTextContents();
    return rows.map((row) => row.replaceAll('\u00a0', ' ').trimEnd());
  }

  async text(): Promise<string> {
    return (await this.rows()).join('\n').trimEnd();
  }

  async shows(what: RegExp): Promise<RegExpExecArray> {
    let found: RegExpExecArray | null = null;
    let text = '';
    const isShown = async () => {
      text = await this.text();
      found = what.exec(text);
      return found !== null;
    };
    await until(`the terminal shows ${what}`, isShown).catch((error: Error) => {
      throw new Error(`${error.message}. It shows:\n${text}`);
    });
    assert.ok(found);
    return found;
  }

  /** What the shell answers to `stty size`. `mark` makes the answer differ from earlier ones on the screen. */
  async sttySize(mark: string): Promise<{ rows: number; cols: number }> {
    // The shell puts the mark together, so the typed line does not match.
    await this.run(`echo "${mark}""=$(stty size)"`);
    const [, rows, cols] = await this.shows(new RegExp(`^${mark}=(\\d+) (\\d+)$`, 'm'));
    return { rows: Number(rows), cols: Number(cols) };
  }
}
