import { session } from "../session.svelte";
import { accounts } from "./api";
import type { Member, Project, ServiceAccount } from "./types";

/** The names behind the ids of people, service accounts and projects, for those who may know them. */
class Directory {
  members = $state.raw<Member[]>([]);
  services = $state.raw<ServiceAccount[]>([]);
  projects = $state.raw<Project[]>([]);

  readonly #names = $derived(
    new Map([
      ...this.members.map(({ id, name, email }) => [id, name || email] as const),
      ...[...this.services, ...this.projects].map(({ id, name }) => [id, name] as const),
    ]),
  );

  get names(): Map<string, string> {
    return this.#names;
  }

  /** What cannot be loaded stays an id: the page that shows it is of use without. */
  async load(): Promise<void> {
    const take = <T>(promise: Promise<T>, set: (value: T) => void) => promise.then(set, () => {});
    const all = [take(accounts.projects(), (value) => (this.projects = value))];
    if (session.admin) {
      all.push(
        take(accounts.members(), (value) => (this.members = value)),
        take(accounts.services(), (value) => (this.services = value)),
      );
    }
    await Promise.all(all);
  }

  nameOf(id: string | null | undefined): string {
    if (!id) return "";
    if (id === session.identity?.user?.id) return "You";
    return this.#names.get(id) ?? id;
  }
}

export const directory = new Directory();
