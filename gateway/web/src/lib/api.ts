import type { Conversation, ErrorBody, Identity, Model, TurnRequest, TurnStarted } from "./types";

/** A call that failed: status 0 where no answer came at all. `retryAfter` is in seconds. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    readonly body: ErrorBody,
    readonly retryAfter: number | null = null,
  ) {
    super(body.message);
  }
}

/** Browsers refuse to keep more than 64 KiB alive. */
const KEPT_ALIVE = 16_000;

type Listener = () => void;
let whenSignedOut: Listener = () => {};

export function onSignedOut(listener: Listener): void {
  whenSignedOut = listener;
}

export async function request<T>(method: string, path: string, body?: unknown): Promise<T> {
  const payload = body === undefined ? null : JSON.stringify(body);
  let response: Response;
  try {
    response = await fetch(path, {
      method,
      headers: body === undefined ? {} : { "content-type": "application/json" },
      body: payload,
      // A change of mind just before a reload must still arrive.
      keepalive: method === "PATCH" && payload !== null && payload.length < KEPT_ALIVE,
    });
  } catch {
    throw new ApiError(0, { message: "The server can't be reached." });
  }
  if (!response.ok) throw await failure(response, path);
  if (response.status === 204) return undefined as T;
  try {
    return (await response.json()) as T;
  } catch {
    throw new ApiError(0, { message: "The connection to the server was lost." });
  }
}

async function failure(response: Response, path: string): Promise<ApiError> {
  if (response.status === 401 && !(path === "/api/session")) whenSignedOut();
  const body = await response.json().then(
    (json: { error?: ErrorBody }) => json.error,
    () => undefined,
  );
  const wait = Number(response.headers.get("retry-after") ?? NaN);
  return new ApiError(
    response.status,
    body ?? { message: `The server answered ${response.status}.` },
    Number.isFinite(wait) ? wait : null,
  );
}

export const part = encodeURIComponent;

export const api = {
  session: () => request<Identity>("GET", "/api/session"),
  signOut: () => request<void>("DELETE", "/api/session"),
  models: () => request<{ data: Model[]; default: string }>("GET", "/api/models"),
  conversations: (query: { q?: string; before?: number; limit?: number }) => {
    const search = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      if (value !== undefined && value !== "") search.set(name, String(value));
    }
    return request<{ data: Conversation[]; more: boolean }>("GET", `/api/conversations?${search}`);
  },
  createConversation: (fields: Partial<Conversation>) =>
    request<Conversation>("POST", "/api/conversations", fields),
  conversation: (id: string) => request<Conversation>("GET", `/api/conversations/${part(id)}`),
  patchConversation: (id: string, fields: Partial<Conversation>) =>
    request<Conversation>("PATCH", `/api/conversations/${part(id)}`, fields),
  deleteConversation: (id: string) => request<void>("DELETE", `/api/conversations/${part(id)}`),
  startTurn: (conversation: string, turn: TurnRequest) =>
    request<TurnStarted>("POST", `/api/conversations/${part(conversation)}/turns`, turn),
  stopTurn: (answer: string) => request<void>("POST", `/api/turns/${part(answer)}/stop`),
  eventsUrl: (answer: string, from: number | string) =>
    `/api/turns/${part(answer)}/events?from=${from}`,
};
