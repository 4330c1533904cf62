import { part, request } from "../api";
import type { Role } from "../types";
import type {
  AuditEntry, Grouping, Invitation, Invite, Key, List, Member, NewKey, Organisation, Project, ServiceAccount, SignInOptions, Usage, User,
} from "./types";

const P = "/api/organization";
const list = <T>(path: string) => request<List<T>>("GET", path).then(({ data }) => data);

export interface SignUp {
  email: string;
  password: string;
  name: string;
  invite?: string;
}

/** What the account pages ask of the server. The chat page does without it, and so loads without it. */
export const accounts = {
  options: () => request<SignInOptions>("GET", "/api/signin"),
  signIn: (body: { email: string; password: string } | { key: string }) => request<void>("POST", "/api/session", body),
  signOutEverywhere: () => request<void>("DELETE", "/api/session/all"),
  /** The token as the address writes it. */
  invitation: (token: string) => request<Invitation>("GET", `/api/invites/${token}`),
  signUp: (body: SignUp) => request<void>("POST", "/api/signup", body),
  rename: (name: string) => request<User>("PATCH", "/api/account", { name }),
  changePassword: (body: { current?: string; new: string }) => request<void>("POST", "/api/account/password", body),

  organisation: () => request<Organisation>("GET", P),
  changeOrganisation: (fields: { name?: string; monthly_budget?: number | null }) => request<Organisation>("PATCH", P, fields),

  members: () => list<Member>(`${P}/users`),
  changeMember: (id: string, fields: { role: Role }) => request<Member>("PATCH", `${P}/users/${part(id)}`, fields),
  removeMember: (id: string) => request<void>("DELETE", `${P}/users/${part(id)}`),

  invites: () => list<Invite>(`${P}/invites`),
  invite: (body: { email?: string; role: Role; expires_in_days: number }) => request<Invite>("POST", `${P}/invites`, body),
  removeInvite: (id: string) => request<void>("DELETE", `${P}/invites/${part(id)}`),

  projects: () => list<Project>(`${P}/projects`),
  createProject: (name: string) => request<Project>("POST", `${P}/projects`, { name }),
  changeProject: (id: string, fields: { name?: string; archived?: boolean }) =>
    request<Project>("PATCH", `${P}/projects/${part(id)}`, fields),

  services: () => list<ServiceAccount>(`${P}/service_accounts`),
  createService: (body: { name: string; project?: string }) => request<ServiceAccount>("POST", `${P}/service_accounts`, body),
  removeService: (id: string) => request<void>("DELETE", `${P}/service_accounts/${part(id)}`),

  keys: () => list<Key>(`${P}/api_keys`),
  createKey: (body: NewKey) => request<Key>("POST", `${P}/api_keys`, body),
  revokeKey: (id: string) => request<void>("DELETE", `${P}/api_keys/${part(id)}`),

  audit: (query: { before?: number; limit: number }) => {
    const search = new URLSearchParams({ limit: String(query.limit) });
    if (query.before !== undefined) search.set("before", String(query.before));
    return list<AuditEntry>(`${P}/audit_logs?${search}`);
  },

  usage: (query: { start: number; end: number; group_by: Grouping }) =>
    request<Usage>("GET", `/api/usage?start=${query.start}&end=${query.end}&bucket=day&group_by=${query.group_by}`),
};
