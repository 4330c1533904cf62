import type { AuditEntry } from "./types";

const NOUNS: Record<string, string> = {
  key: "the API key",
  member: "the member",
  user: "the member",
  invite: "an invite",
  project: "the project",
  service_account: "the service account",
  organisation: "the organisation",
  organization: "the organisation",
  conversation: "a conversation",
  tier: "the tier",
  password: "the password",
};
const VERBS: Record<string, string> = {
  create: "created",
  update: "changed",
  change: "changed",
  patch: "changed",
  remove: "removed",
  delete: "deleted",
  revoke: "revoked",
  archive: "archived",
  suspend: "suspended",
  accept: "accepted",
  set: "set",
};
/** Those that noun and verb would not say well. */
const WHOLE: Record<string, string> = {
  "member.role": "changed the role of the member",
  "user.create": "created an account",
  "user.add": "added the member",
  "user.password": "set a password",
  "tier.change": "changed the tier",
  "signin.failed": "failed to sign in",
  "signin.password": "signed in with a password",
  "signin.oidc": "signed in through the identity provider",
  "signin.key": "signed in with an API key",
  "signin.link": "signed in with the start-up link",
  "session.close_all": "signed out everywhere",
};

/** `noun.verb` in plain words; an action that this page does not know stays as it is. */
export function actionWords(action: string): string {
  const whole = WHOLE[action];
  if (whole) return whole;
  const [noun = "", verb = ""] = action.split(".");
  const [object, deed] = [NOUNS[noun], VERBS[verb]];
  return object && deed ? `${deed} ${object}` : action;
}

function valueWords(value: unknown): string {
  if (Array.isArray(value)) return value.map(valueWords).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

/** Details as "role: admin". */
export function detailWords(details: AuditEntry["details"]): string {
  return Object.entries(details ?? {})
    .filter(([, value]) => value !== null && value !== "" && !(Array.isArray(value) && value.length === 0))
    .map(([name, value]) => `${name.replaceAll("_", " ")}: ${valueWords(value)}`)
    .join(" · ");
}

const ACTORS: Record<string, string> = { cli: "The command line", system: "The server", owner: "The owner of this server" };

/** names: by the ids of members, keys and service accounts. */
export function actorWords(actor: string, names: Map<string, string>): string {
  return ACTORS[actor] ?? names.get(actor) ?? (actor || "Somebody");
}
