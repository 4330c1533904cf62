import { api } from "./api";
import { drafts } from "./drafts";
import { outbox } from "./outbox";
import { problemOf, type Problem } from "./problems";
import type { Conversation } from "./types";

const PAGE = 40;

/** The list of conversations, newest first, or what a search found. */
class Library {
  items = $state.raw<Conversation[]>([]);
  more = $state(false);
  loading = $state(false);
  loaded = $state(false);
  query = $state("");
  problem = $state.raw<Problem | null>(null);
  #request = 0;
  #cursor: number | undefined;

  /** The first page again; keeps what is shown until it is there. */
  load(): Promise<void> {
    return this.#fetch(undefined);
  }

  loadMore(): Promise<void> {
    return this.loading ? Promise.resolve() : this.#fetch(this.#cursor);
  }

  search(query: string): Promise<void> {
    this.query = query.trim();
    return this.load();
  }

  upsert(conversation: Conversation): void {
    const others = this.items.filter((item) => item.id !== conversation.id);
    if (this.query && others.length === this.items.length) return;
    this.items = [conversation, ...others].sort((a, b) => b.updated - a.updated);
  }

  async rename(id: string, title: string): Promise<void> {
    const renamed = await api.patchConversation(id, { title });
    this.items = this.items.map((item) => (item.id === id ? { ...item, title: renamed.title } : item));
  }

  async remove(id: string): Promise<void> {
    await api.deleteConversation(id);
    outbox.removeOf(id);
    drafts.set(id, "");
    this.items = this.items.filter((item) => item.id !== id);
  }

  async #fetch(before: number | undefined): Promise<void> {
    const request = ++this.#request;
    this.loading = true;
    try {
      const query = { q: this.query, limit: PAGE, ...(before === undefined ? {} : { before }) };
      const page = await api.conversations(query);
      if (request !== this.#request) return;
      const kept = before === undefined ? [] : this.items;
      const known = new Set(kept.map((item) => item.id));
      this.items = [...kept, ...page.data.filter((item) => !known.has(item.id) && isBegun(item))];
      this.#cursor = page.data.at(-1)?.updated;
      this.more = page.more;
      this.loaded = true;
      this.problem = null;
    } catch (error) {
      if (request === this.#request) this.problem = problemOf(error);
    } finally {
      if (request === this.#request) this.loading = false;
    }
  }
}

/** One whose first message never arrived is listed only where that message still waits. */
function isBegun(conversation: Conversation): boolean {
  return conversation.leaf_id !== null || outbox.of(conversation.id) !== null;
}

export const library = new Library();
