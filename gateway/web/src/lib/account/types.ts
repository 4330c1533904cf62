/** The shapes of docs/admin-api.md. Times are seconds since the epoch, money is in millionths of a currency. */
import type { Identity, Role } from "../types";

export interface List<T> {
  data: T[];
}

export interface SignInOptions {
  /** Nobody has an account here yet. */
  empty: boolean;
  password: boolean;
  key: boolean;
  oidc: { name: string } | null;
}

export interface Invitation {
  email: string;
  role: Role;
  organisation: string;
  expires: number;
}

export type User = NonNullable<Identity["user"]>;

export interface Member {
  id: string;
  email: string;
  name: string;
  role: Role;
  has_password: boolean;
  created: number;
  last_seen: number | null;
}

export interface Invite {
  id: string;
  email: string;
  role: Role;
  created: number;
  expires: number;
  accepted_by: string | null;
  /** Both only in the answer that made it. */
  token?: string;
  path?: string;
}

export interface Organisation {
  id: string;
  name: string;
  tier: string;
  region: string;
  monthly_budget: number | null;
  suspended: boolean;
  operator: boolean;
  created: number;
}

export interface Project {
  id: string;
  name: string;
  archived: boolean;
  created: number;
}

export interface ServiceAccount {
  id: string;
  name: string;
  project: string | null;
  created: number;
}

export interface Key {
  id: string;
  name: string;
  hint: string;
  owner: string | null;
  project: string | null;
  scopes: string[];
  models: string[] | null;
  created: number;
  expires: number | null;
  last_used: number | null;
  revoked: boolean;
  /** Only in the answer that made it. */
  secret?: string;
}

export interface NewKey {
  name?: string;
  scopes?: string[];
  models?: string[];
  expires_in_days?: number;
  project?: string;
  owner?: string;
}

export interface AuditEntry {
  seq: number;
  at: number;
  actor: string;
  action: string;
  target: string;
  details: Record<string, unknown> | null;
}

export type Grouping = "model" | "key_id" | "user_id" | "project";

export interface UsageBucket {
  start: number;
  group: Partial<Record<Grouping, string>>;
  requests: number;
  prompt_tokens: number;
  cached_tokens: number;
  output_tokens: number;
  reasoning_tokens: number;
  tool_ms: number;
  cost: number;
}

export interface Usage extends List<UsageBucket> {
  currency: string;
  /** This calendar month's; limit null: there is none. */
  budget: { limit: number | null; spent: number } | null;
}
