/** Called with one line per step of a build, because the first build downloads for about a minute. */
export type Progress = (line: string) => void;
