import { api } from "./api";
import { problemOf, type Problem } from "./problems";
import { load, save } from "./storage";
import type { Model } from "./types";

const KEY = "model";

/** The chat models, and the one that new chats start with: the last one picked here. */
class Models {
  list = $state.raw<Model[]>([]);
  problem = $state.raw<Problem | null>(null);
  #picked = $state<string | null>(load<string | null>(KEY, null));
  #servers = $state("");

  get default(): string {
    const known = this.list.length === 0 || this.list.some((model) => model.id === this.#picked);
    return (known ? this.#picked : null) ?? this.#servers;
  }

  remember(id: string): void {
    this.#picked = id;
    save(KEY, id);
  }

  async load(): Promise<void> {
    try {
      const { data, default: first } = await api.models();
      this.list = data;
      this.#servers = first;
      this.problem = null;
    } catch (error) {
      this.problem = problemOf(error);
    }
  }
}

export const models = new Models();
