import type { Role } from "../types";

export const ROLES: readonly Role[] = ["member", "admin", "owner"];

export const ROLE_HINTS: Record<Role, string> = {
  member: "Uses models and manages their own keys.",
  admin: "Also manages members, keys and invites, and sees usage and the audit log.",
  owner: "Also changes the organisation.",
};

export interface Tab {
  id: string;
  label: string;
  admin: boolean;
}

const TABS: readonly Tab[] = [
  { id: "account", label: "Account", admin: false },
  { id: "keys", label: "API keys", admin: false },
  { id: "members", label: "Members", admin: true },
  { id: "projects", label: "Projects", admin: true },
  { id: "usage", label: "Usage", admin: false },
  { id: "audit", label: "Audit log", admin: true },
];

export function tabsFor(admin: boolean): Tab[] {
  return TABS.filter((tab) => admin || !tab.admin);
}

/** Nobody gives a right that they do not have. */
export function rolesToGive(own: Role): Role[] {
  return ROLES.slice(0, ROLES.indexOf(own) + 1);
}

/** Admins manage members and admins; owners only owners do. */
export function mayManage(own: Role, theirs: Role): boolean {
  return own !== "member" && ROLES.indexOf(own) >= ROLES.indexOf(theirs);
}
