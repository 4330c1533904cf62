import { load, save } from "./storage";
import type { Conversation, Parameters, TurnRequest } from "./types";

/** A message on its way. The client names it, so that sending it twice starts one turn. */
export interface Unsent {
  id: string;
  conversation: string | null;
  parent_id: string | null;
  content: string;
  model?: string;
  system_prompt?: string;
  parameters?: Parameters;
}

const KEY = "outbox";

export function newMessageId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `msg_${Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("")}`;
}

/** The turn that sends it. */
export function turnOf({ id, content, parent_id, model, parameters }: Unsent): TurnRequest {
  return { id, content, parent_id, ...(model ? { model } : {}), ...(parameters ? { parameters } : {}) };
}

/** The conversation that begins with it. */
export function beginningOf({ model, system_prompt, parameters }: Unsent): Partial<Conversation> {
  return { ...(model ? { model } : {}), ...(system_prompt ? { system_prompt } : {}), parameters: parameters ?? {} };
}

/** Reads storage at every call: another tab has the same outbox. */
export const outbox = {
  all: (): Unsent[] => load<Unsent[]>(KEY, []),
  of: (conversation: string | null): Unsent | null =>
    outbox.all().find((entry) => entry.conversation === conversation) ?? null,
  get: (id: string): Unsent | null => outbox.all().find((entry) => entry.id === id) ?? null,
  put(entry: Unsent): void {
    save(KEY, [...outbox.all().filter((other) => other.id !== entry.id), entry]);
  },
  remove(id: string): void {
    save(KEY, outbox.all().filter((entry) => entry.id !== id));
  },
  /** What was to go into a conversation that is no more. */
  removeOf(conversation: string): void {
    save(KEY, outbox.all().filter((entry) => entry.conversation !== conversation));
  },
};
