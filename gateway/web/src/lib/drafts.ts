import { load, save } from "./storage";

const key = (conversation: string | null) => `draft.${conversation ?? "new"}`;

/** What was typed and not sent, by conversation; null is the new chat. */
export const drafts = {
  get: (conversation: string | null): string => load(key(conversation), ""),
  set: (conversation: string | null, text: string): void => save(key(conversation), text),
};
