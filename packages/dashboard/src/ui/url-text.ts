// The text of a field that the URL holds too. The URL changes later than the field, so the field has its own text:
// otherwise the caret would jump to the end while a person types in the middle, and input methods would break.
import { type ChangeEvent, useState } from 'react';

/** `seen`: the last text of the URL. `sent`: the typed texts that the URL does not have yet, oldest first. */
type UrlText = { text: string; seen: string; sent: readonly string[] };

export const opened = (value: string): UrlText => ({ text: value, seen: value, sent: [] });

export const typed = (state: UrlText, text: string): UrlText => ({ ...state, text, sent: [...state.sent, text] });

/** The state after the URL has changed to `value`. A text that was not typed here, such as after Back, is taken over. */
export function follow(state: UrlText, value: string): UrlText {
  if (value === state.seen) return state;
  const place = state.sent.indexOf(value);
  return place < 0 ? opened(value) : { ...state, seen: value, sent: state.sent.slice(place + 1) };
}

/** The properties of the input. `value`: the text of the URL. `report` puts another one there. */
export function useUrlText(value: string, report: (text: string) => void) {
  const [state, setState] = useState(() => opened(value));
  const now = follow(state, value);
  if (now !== state) setState(now);
  const onChange = ({ target }: ChangeEvent<HTMLInputElement>) => {
    setState((before) => typed(before, target.value));
    report(target.value);
  };
  return { value: now.text, onChange };
}
