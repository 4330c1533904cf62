import { expect, it } from "vitest";
import { inOrder, modelsOf, rightsOf, scopesOf, stateOf } from "../../src/lib/account/keys";
import { mayManage, rolesToGive, tabsFor } from "../../src/lib/account/rights";
import type { Key } from "../../src/lib/account/types";

const NOW = 1_800_000_000;
const DAY = 86_400;
const MEMBERS = ["model.request", "model.read", "conversations", "usage.read"];

const key = (fields: Partial<Key> = {}): Key => ({
  id: "key_1",
  name: "Laptop",
  hint: "a1b2",
  owner: null,
  project: null,
  scopes: ["model.request", "model.read"],
  models: [],
  created: NOW,
  expires: null,
  last_used: null,
  revoked: false,
  ...fields,
});

it("shows each person the pages that they may use", () => {
  expect(tabsFor(false).map(({ id }) => id)).toEqual(["account", "keys", "usage"]);
  expect(tabsFor(true).map(({ id }) => id)).toContain("audit");
});

it("offers nobody a role above their own", () => {
  expect(rolesToGive("member")).toEqual(["member"]);
  expect(rolesToGive("admin")).toEqual(["member", "admin"]);
  expect(rolesToGive("owner")).toEqual(["member", "admin", "owner"]);
});

it("lets only owners touch owners", () => {
  expect(mayManage("admin", "owner")).toBe(false);
  expect(mayManage("admin", "admin")).toBe(true);
  expect(mayManage("owner", "owner")).toBe(true);
  expect(mayManage("member", "member")).toBe(false);
});

it("asks for no scope that its maker lacks", () => {
  expect(scopesOf("models", ["model.request"], [])).toEqual(["model.request"]);
  expect(scopesOf("all", MEMBERS, [])).toEqual(MEMBERS);
  expect(scopesOf("custom", MEMBERS, ["usage.read", "admin"])).toEqual(["usage.read"]);
});

it("says what a key may do", () => {
  expect(rightsOf(key(), MEMBERS)).toBe("Use models");
  expect(rightsOf(key({ scopes: MEMBERS }), MEMBERS)).toBe("All rights");
  expect(rightsOf(key({ scopes: ["usage.read", "admin"] }), MEMBERS)).toBe("Read usage, Manage the organisation");
  expect(rightsOf(key({ scopes: ["to.come"] }), MEMBERS)).toBe("to.come");
  expect(modelsOf(key())).toBe("All models");
  expect(modelsOf(key({ models: ["a", "b"] }))).toBe("a, b");
});

it("says how a key stands", () => {
  expect(stateOf(key(), NOW)).toEqual({ word: "Active", detail: "Never expires", usable: true });
  expect(stateOf(key({ expires: NOW + 30 * DAY }), NOW)).toMatchObject({ word: "Active", detail: "Expires in 30 days" });
  expect(stateOf(key({ expires: NOW + DAY }), NOW)).toMatchObject({ word: "Ends soon", usable: true });
  expect(stateOf(key({ expires: NOW }), NOW)).toMatchObject({ word: "Expired", usable: false });
  expect(stateOf(key({ expires: NOW + DAY, revoked: true }), NOW)).toMatchObject({ word: "Revoked", usable: false });
});

it("lists usable keys first, the newest at the top", () => {
  const keys = [key({ id: "old", created: 1 }), key({ id: "dead", created: 9, revoked: true }), key({ id: "new", created: 5 })];
  expect(inOrder(keys, NOW).map(({ id }) => id)).toEqual(["new", "old", "dead"]);
});
