/** The shapes of docs/web-api.md. Times are seconds since the epoch. */
export interface Parameters {
  temperature?: number;
  top_p?: number;
  max_tokens?: number;
  seed?: number;
  presence_penalty?: number;
  frequency_penalty?: number;
}

export interface Conversation {
  id: string;
  title: string;
  model: string;
  system_prompt: string;
  parameters: Parameters;
  leaf_id: string | null;
  created: number;
  updated: number;
  messages?: Message[];
}

export type Status = "complete" | "running" | "stopped" | "interrupted" | "error";

export interface Usage {
  prompt_tokens?: number;
  completion_tokens?: number;
  cached_tokens?: number;
  ttft_s?: number;
  tokens_per_s?: number;
  dropped_messages?: number;
}

export interface ErrorBody {
  message: string;
  type?: string | null;
  param?: string | null;
  code?: string | null;
}

export interface Message {
  id: string;
  conversation_id: string;
  parent_id: string | null;
  role: "user" | "assistant";
  content: string;
  status: Status;
  model: string | null;
  finish_reason: string | null;
  /** Why it failed, in words. */
  error: string | null;
  usage: Usage | null;
  created: number;
}

export interface Model {
  id: string;
  context_window?: number | null;
}

export type TurnRequest = (
  | { content: string; parent_id: string | null; id: string }
  | { regenerate: string }
  | { continue: string }
) & { model?: string; parameters?: Parameters };

export interface TurnStarted {
  user: Message | null;
  answer: Message;
}

export type TurnEvent = { text: string } | { done: Message } | { error: ErrorBody; message: Message };

export type Role = "member" | "admin" | "owner";

/** Who is signed in. Those of docs/admin-api.md, as all that follow. */
export interface Identity {
  authenticated: boolean;
  /** null: the owner of the machine, who has no account yet. */
  user: { id: string; email: string; name: string; has_password: boolean } | null;
  role: Role;
  organisation: { id: string; name: string; tier: string; region: string; operator: boolean };
  scopes: string[];
}
