// Extracts the examples from the README and the pages in docs/. All code blocks of one language on a page form one
// program. All other lines become empty lines, so line numbers in error messages are those of the page.
import { globSync, readFileSync } from 'node:fs';
import path from 'node:path';

export const CHECKOUT = path.resolve(import.meta.dirname, '../../..');

const LANGUAGES = { ts: 'ts', python: 'py', bash: 'sh', sh: 'sh' } as const;
export type Language = (typeof LANGUAGES)[keyof typeof LANGUAGES];

export type Example = {
  /** The page, such as `docs/guides/files.md`. */
  page: string;
  language: Language;
  text: string;
  /** What the program must print, from comments such as `// prints 42`. */
  prints: string[];
};

const FENCE = /^( *)(`{3,})([a-z]*)(.*)$/;
const PRINTS = /(?:\/\/|#) prints (.+)$/;

/** The pages that people write, without the generated pages. */
export function pages(): string[] {
  return globSync(['README.md', 'docs/*.md', 'docs/guides/*.md', 'docs/reference/*.md'], { cwd: CHECKOUT }).sort();
}

/** The programs of a page. A block may be marked `{no-run}`; `problems` lists marked blocks that do not say why. */
export function readExamples(page: string): { examples: Example[]; problems: string[] } {
  const lines = readFileSync(path.join(CHECKOUT, page), 'utf8').split('\n');
  const programs = new Map<Language, string[]>();
  const problems: string[] = [];
  for (let index = 0; index < lines.length; index++) {
    const [, indent = '', fence, name = '', rest = ''] = FENCE.exec(lines[index] ?? '') ?? [];
    if (fence === undefined) continue;
    const first = index + 1;
    do index++;
    while (index < lines.length && lines[index]?.trim() !== fence);
    const language = Object.hasOwn(LANGUAGES, name) ? LANGUAGES[name as keyof typeof LANGUAGES] : undefined;
    if (language === undefined) continue;
    if (rest.includes('{no-run}')) {
      if (!lines[first - 2]?.endsWith('-->'))
        problems.push(`${page}:${first}: no comment above says why it cannot run`);
      continue;
    }
    const program = programs.get(language) ?? lines.map(() => '');
    programs.set(language, program);
    for (let line = first; line < index; line++) program[line] = (lines[line] ?? '').slice(indent.length);
  }
  const examples = [...programs].map(([language, program]) => ({
    page,
    language,
    text: program.join('\n'),
    prints: program.flatMap((line) => PRINTS.exec(line)?.[1] ?? []),
  }));
  return { examples, problems };
}

/** A comment above a block that another test runs: `tests/faults/x.test.ts runs this: LABEL.` */
const RUN_BY = /^<!-- (tests\/\S+\.test\.ts) runs this: (.+)\. -->$/;

/** The blocks of a page, of any language, that the test file `test` runs, by the labels in the comments above them. */
export function blocksRunBy(page: string, test: string): ReadonlyMap<string, string> {
  const lines = readFileSync(path.join(CHECKOUT, page), 'utf8').split('\n');
  const blocks = new Map<string, string>();
  for (const [index, line] of lines.entries()) {
    const [, by, label = ''] = RUN_BY.exec(line) ?? [];
    if (by !== test) continue;
    const [, , fence] = FENCE.exec(lines[index + 1] ?? '') ?? [];
    const end = lines.indexOf(fence ?? '', index + 2);
    if (fence === undefined || end === -1 || blocks.has(label))
      throw new Error(`${page}:${index + 1}: no block of its own`);
    blocks.set(label, `${lines.slice(index + 2, end).join('\n')}\n`);
  }
  return blocks;
}
