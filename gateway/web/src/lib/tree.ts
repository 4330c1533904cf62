import type { Message } from "./types";

/** A message on the branch shown, with its place among its siblings. */
export interface Step {
  message: Message;
  siblings: string[];
}

/** The messages from the root to `leaf`, each once; an unknown leaf gives none. */
export function branchPath(messages: Message[], leaf: string | null): Step[] {
  const byId = new Map(messages.map((message) => [message.id, message]));
  const siblings = siblingIds(messages);
  const path: Step[] = [];
  const seen = new Set<string>();
  for (let at = leaf; at !== null && !seen.has(at); ) {
    const message = byId.get(at);
    if (!message) break;
    seen.add(at);
    path.push({ message, siblings: siblings.get(siblingKey(message)) ?? [message.id] });
    at = message.parent_id;
  }
  return path.reverse();
}

/** The newest leaf below `from`: where a person who picks this branch most likely left it. */
export function newestLeaf(messages: Message[], from: string | null): string | null {
  const newestChild = new Map<string | null, string>();
  for (const message of messages) newestChild.set(message.parent_id, message.id);
  const seen = new Set<string | null>();
  let at = from;
  while (!seen.has(at)) {
    seen.add(at);
    at = newestChild.get(at) ?? at;
  }
  return at;
}

function siblingKey(message: Message): string {
  return `${message.role} ${message.parent_id ?? ""}`;
}

function siblingIds(messages: Message[]): Map<string, string[]> {
  const groups = new Map<string, string[]>();
  for (const message of messages) {
    const key = siblingKey(message);
    const group = groups.get(key);
    if (group) group.push(message.id);
    else groups.set(key, [message.id]);
  }
  return groups;
}
