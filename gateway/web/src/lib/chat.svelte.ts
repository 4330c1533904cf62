import { announcer } from "./announcer.svelte";
import { api, ApiError } from "./api";
import { branch } from "./branch";
import { drafts } from "./drafts";
import { library } from "./library.svelte";
import { LiveTurn } from "./live.svelte";
import { models } from "./models.svelte";
import { beginningOf, newMessageId, outbox, turnOf, type Unsent } from "./outbox";
import { problemOf, type Problem } from "./problems";
import { router } from "./router.svelte";
import { branchPath, newestLeaf } from "./tree";
import type { Conversation, Message, Parameters, TurnRequest, TurnStarted } from "./types";

/** A turn that could not start, said where it was asked for. */
export interface Trouble {
  at: string;
  problem: Problem;
  retry: () => void;
}

export interface Settings {
  model: string;
  system_prompt: string;
  parameters: Parameters;
}

const RETRY_MS = 2500;
const NO_SETTINGS: Settings = { model: "", system_prompt: "", parameters: {} };

/** The conversation on screen: its messages, the branch shown and the turn that runs. */
class Chat {
  id = $state<string | null>(null);
  title = $state("");
  messages = $state.raw<Message[]>([]);
  leaf = $state<string | null>(null);
  unsent = $state.raw<Unsent | null>(null);
  live = $state.raw<LiveTurn | null>(null);
  loading = $state(false);
  sending = $state(false);
  problem = $state.raw<Problem | null>(null);
  trouble = $state.raw<Trouble | null>(null);
  settings = $state.raw<Settings>(NO_SETTINGS);
  /** The question to hold near the top of the window. */
  pinned = $state.raw<{ id: string } | null>(null);
  /** Text that came before the server died and that it had not saved: shown, but not to build on. */
  #unsaved = $state.raw<Record<string, string>>({});
  #epoch = 0;

  readonly path = $derived(branchPath(this.messages, this.unsent ? this.unsent.parent_id : this.leaf));
  readonly busy = $derived(this.sending || this.live !== null);
  readonly empty = $derived(this.path.length === 0 && this.unsent === null);

  readonly model = $derived(this.settings.model || models.default);

  textOf(message: Message): string {
    if (this.live?.id === message.id) return this.live.text;
    return this.#unsaved[message.id] ?? message.content;
  }

  /** Shows a conversation; null is a new chat. */
  async open(id: string | null): Promise<void> {
    this.#epoch += 1;
    this.live?.close();
    this.live = null;
    this.id = id;
    this.messages = [];
    this.leaf = this.pinned = this.problem = this.trouble = null;
    this.sending = false;
    this.settings = NO_SETTINGS;
    this.title = "";
    this.#showTitle();
    this.#showUnsent();
    if (id !== null) await this.refresh();
  }

  /** Takes the server's state, and follows the turn that runs there. */
  async refresh(): Promise<void> {
    const { id } = this;
    if (id === null) return;
    const epoch = this.#epoch;
    this.loading = this.messages.length === 0;
    try {
      const conversation = await api.conversation(id);
      if (epoch === this.#epoch) this.#take(conversation);
    } catch (error) {
      if (epoch !== this.#epoch) return;
      // While an answer's line is down its own note says so; try until the server is back.
      if (this.live) setTimeout(() => epoch === this.#epoch && this.live?.lost && void this.refresh(), RETRY_MS);
      else {
        this.problem = problemOf(error);
        if (error instanceof ApiError && error.status === 404) this.messages = [];
      }
    } finally {
      if (epoch === this.#epoch) this.loading = false;
    }
  }

  send(content: string, parent_id: string | null = this.path.at(-1)?.message.id ?? null): void {
    const { model, system_prompt, parameters } = { ...this.settings, model: this.model };
    const fields = { parent_id, content, system_prompt, parameters, ...(model ? { model } : {}) };
    const entry: Unsent = { id: newMessageId(), conversation: this.id, ...fields };
    outbox.put(entry);
    this.unsent = entry;
    this.pinned = { id: entry.id };
    void this.deliver(entry);
  }

  /** Sends what waits in the outbox. Safe to repeat: the message carries its own id. */
  async deliver(entry: Unsent): Promise<void> {
    const epoch = this.#epoch;
    this.trouble = null;
    this.sending = true;
    try {
      const conversation = entry.conversation ?? (await this.#create(entry, epoch));
      const started = await api.startTurn(conversation, turnOf(entry));
      outbox.remove(entry.id);
      if (entry.parent_id === null) void library.load().then(() => this.#showTitle());
      if (epoch === this.#epoch) this.#accept(started);
    } catch (error) {
      if (epoch !== this.#epoch) return;
      const waiting = outbox.get(entry.id) ?? entry;
      this.unsent = waiting;
      this.#fail(entry.id, error, () => void this.deliver(waiting));
    } finally {
      if (epoch === this.#epoch) this.sending = false;
    }
  }

  /** After a new sign-in: what the end of the session stopped goes on. */
  async resume(): Promise<void> {
    if (this.trouble) this.trouble.retry();
    else await this.refresh();
  }

  /** Takes the message that could not be sent back into the composer. */
  discard(entry: Unsent): string {
    this.#drop(entry);
    this.pinned = null;
    return entry.content;
  }

  async regenerate(message: Message): Promise<void> {
    await this.#start(message.id, { regenerate: message.id });
    if (this.live && message.parent_id) this.pinned = { id: message.parent_id };
  }

  async continue(message: Message): Promise<void> {
    if (this.live?.lost) {
      this.live.asked = true;
      await this.refresh();
      if (this.live) return;
    }
    await this.#start(message.id, { continue: message.id });
  }

  async stop(): Promise<void> {
    const { live } = this;
    if (!live || live.stopping) return;
    live.stopping = true;
    announcer.say("Stopping");
    try {
      await api.stopTurn(live.id);
    } catch (error) {
      live.stopping = false;
      this.#fail(live.id, error, () => void this.stop());
    }
  }

  /** Shows the branch of this sibling and remembers it on the server. */
  choose(sibling: string): void {
    this.leaf = newestLeaf(this.messages, sibling);
    if (this.id && this.leaf) void branch.choose(this.id, this.leaf);
  }

  /** Before the first message the settings wait here and go with it. */
  async change(fields: Partial<Settings>): Promise<void> {
    this.settings = { ...this.settings, ...fields };
    if (fields.model) models.remember(fields.model);
    if (this.id) await api.patchConversation(this.id, fields);
  }

  #showTitle(): void {
    this.title = library.items.find((item) => item.id === this.id)?.title ?? this.title;
  }

  #showUnsent(): void {
    this.unsent = outbox.of(this.id);
    const entry = this.unsent;
    if (!entry) return;
    const problem = { why: "This message was not sent.", advice: "", retryable: true, waitSeconds: 0 };
    this.trouble = { at: entry.id, problem, retry: () => void this.deliver(entry) };
  }

  #drop(entry: Unsent): void {
    outbox.remove(entry.id);
    this.unsent = this.trouble = null;
  }

  async #create(entry: Unsent, epoch: number): Promise<string> {
    const conversation = await api.createConversation(beginningOf(entry));
    outbox.put({ ...entry, conversation: conversation.id });
    if (epoch === this.#epoch) {
      drafts.set(conversation.id, drafts.get(null));
      drafts.set(null, "");
      this.id = conversation.id;
      this.title = conversation.title;
      router.replace(conversation.id);
    }
    return conversation.id;
  }

  async #start(at: string, turn: TurnRequest): Promise<void> {
    if (this.id === null || this.busy) return;
    const epoch = this.#epoch;
    this.trouble = null;
    this.sending = true;
    try {
      const started = await api.startTurn(this.id, { ...turn, ...(this.model ? { model: this.model } : {}) });
      if (epoch === this.#epoch) this.#accept(started);
    } catch (error) {
      if (epoch === this.#epoch) this.#fail(at, error, () => void this.#start(at, turn));
    } finally {
      if (epoch === this.#epoch) this.sending = false;
    }
  }

  #fail(at: string, error: unknown, retry: () => void): void {
    this.trouble = { at, problem: problemOf(error), retry };
    announcer.say(this.trouble.problem.why);
    if (error instanceof ApiError && error.status === 409) void this.refresh();
  }

  #accept({ user, answer }: TurnStarted): void {
    if (user) this.#put(user);
    this.#put(answer);
    this.leaf = answer.id;
    branch.forget();
    this.unsent = null;
    const known = library.items.find((item) => item.id === this.id);
    if (known) library.upsert({ ...known, updated: answer.created });
    if (answer.status === "running") this.#follow(answer);
  }

  #put(message: Message): void {
    const index = this.messages.findIndex((other) => other.id === message.id);
    this.messages = index < 0 ? [...this.messages, message] : this.messages.with(index, message);
  }

  #take(conversation: Conversation): void {
    const messages = conversation.messages ?? [];
    const { model, system_prompt, parameters } = conversation;
    this.title = conversation.title;
    this.settings = { model, system_prompt, parameters };
    this.messages = messages;
    this.problem = null;
    if (this.unsent && messages.some((message) => message.id === this.unsent?.id)) this.#drop(this.unsent);
    const running = messages.find((message) => message.status === "running");
    const stays = messages.some((message) => message.id === this.leaf);
    if (!stays || running) this.leaf = conversation.leaf_id ?? newestLeaf(messages, null);
    const chosen = branch.pending(conversation.id);
    if (chosen && !running && messages.some((message) => message.id === chosen)) {
      this.leaf = chosen;
      void branch.choose(conversation.id, chosen);
    }
    const { live } = this;
    if (live && !live.lost && live.id === running?.id) return;
    const followed = messages.find((message) => message.id === live?.id);
    if (followed && followed.status !== "running") this.#end(followed);
    if (running) this.#follow(running);
  }

  /** While it runs, `answer.content` is what it held before this turn: nothing, or what is continued. */
  #follow(answer: Message): void {
    const seen = this.live?.id === answer.id ? this.live.flush() : "";
    this.live?.close();
    const { [answer.id]: _, ...unsaved } = this.#unsaved;
    this.#unsaved = unsaved;
    const epoch = this.#epoch;
    announcer.say("Answering");
    this.live = new LiveTurn(answer.id, answer.content, seen, {
      ended: (message) => epoch === this.#epoch && this.#end(message),
      refused: () => setTimeout(() => epoch === this.#epoch && void this.refresh(), RETRY_MS),
    });
  }

  /** The answer as saved. What the reader has seen stays, even where the server lost its last words. */
  #end(message: Message): void {
    const shown = this.live?.flush() ?? "";
    this.live?.close();
    this.live = null;
    if (message.status !== "complete" && shown.length > message.content.length && shown.startsWith(message.content)) {
      this.#unsaved = { ...this.#unsaved, [message.id]: shown };
    }
    this.#put(message);
    announcer.say(message.status === "complete" ? `Answer: ${message.content}` : `Answer ${message.status}`);
  }
}

export const chat = new Chat();
