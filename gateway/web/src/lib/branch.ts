import { api } from "./api";
import { load, save } from "./storage";

interface Choice {
  conversation: string;
  leaf: string;
}

const KEY = "branch";

/** A chosen branch on its way to the server: without this, a reload at once would overtake it. */
export const branch = {
  pending(conversation: string): string | null {
    const choice = load<Choice | null>(KEY, null);
    return choice?.conversation === conversation ? choice.leaf : null;
  },
  async choose(conversation: string, leaf: string): Promise<void> {
    save(KEY, { conversation, leaf } satisfies Choice);
    try {
      await api.patchConversation(conversation, { leaf_id: leaf });
    } catch {
      return; // the next load sends it again
    }
    if (branch.pending(conversation) === leaf) branch.forget();
  },
  forget: (): void => save(KEY, undefined),
};
