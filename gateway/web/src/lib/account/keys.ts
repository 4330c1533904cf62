import { until } from "./format";
import type { Key } from "./types";

const SOON_S = 7 * 86_400;

export const SCOPE_WORDS: Record<string, string> = {
  "model.request": "Use models",
  "model.read": "List models",
  conversations: "Read and write conversations",
  "usage.read": "Read usage",
  admin: "Manage the organisation",
  operator: "Manage every organisation",
};
const TO_USE_MODELS = ["model.request", "model.read"];

export type Preset = "models" | "all" | "custom";

/** What a new key is asked for; never more than its maker may do. */
export function scopesOf(preset: Preset, mine: string[], chosen: string[]): string[] {
  if (preset === "models") return TO_USE_MODELS.filter((scope) => mine.includes(scope));
  if (preset === "all") return mine;
  return mine.filter((scope) => chosen.includes(scope));
}

/** What a key may do, in as few words as are true. */
export function rightsOf(key: Key, mine: string[] = []): string {
  const { scopes } = key;
  if (scopes.length === TO_USE_MODELS.length && TO_USE_MODELS.every((scope) => scopes.includes(scope))) return "Use models";
  if (mine.length > 0 && mine.every((scope) => scopes.includes(scope))) return "All rights";
  return scopes.map((scope) => SCOPE_WORDS[scope] ?? scope).join(", ") || "Nothing";
}

export function modelsOf(key: Key): string {
  return key.models?.length ? key.models.join(", ") : "All models";
}

export interface KeyState {
  word: "Active" | "Ends soon" | "Expired" | "Revoked";
  detail: string;
  usable: boolean;
}

export function stateOf(key: Key, now = Date.now() / 1000): KeyState {
  if (key.revoked) return { word: "Revoked", detail: "", usable: false };
  if (!key.expires) return { word: "Active", detail: "Never expires", usable: true };
  if (key.expires <= now) return { word: "Expired", detail: "", usable: false };
  const detail = `Expires ${until(key.expires, now)}`;
  return { word: key.expires - now < SOON_S ? "Ends soon" : "Active", detail, usable: true };
}

/** Usable ones first, then the newest. */
export function inOrder(keys: Key[], now = Date.now() / 1000): Key[] {
  const rank = (key: Key) => (stateOf(key, now).usable ? 0 : 1);
  return keys.toSorted((a, b) => rank(a) - rank(b) || b.created - a.created);
}
