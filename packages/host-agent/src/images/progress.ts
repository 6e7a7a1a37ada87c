/** Told what the build does, a line at a time, because the first one downloads for a minute. */
export type Progress = (line: string) => void;
