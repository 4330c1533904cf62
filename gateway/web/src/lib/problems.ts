import { ApiError } from "./api";
import type { Message } from "./types";

/** One failure in words: who failed and why, then what to do. */
export interface Problem {
  why: string;
  advice: string;
  retryable: boolean;
  waitSeconds: number;
  /** What is spent, and what may be, says Settings → Usage. */
  quota?: boolean;
}

const ADVICE: Record<number, string> = {
  0: "Check that the server runs and that you are connected, then retry.",
  401: "Sign in again.",
  403: "Ask the person who runs this server for access.",
  404: "It may have been deleted, here or in another window.",
  409: "Wait for the answer in progress to end, or stop it.",
  413: "Shorten the message.",
  429: "Wait a little, then retry.",
  503: "Wait a little, then retry.",
  504: "Retry, or ask for a shorter answer.",
};
const SAYS_WHEN = /try again in (\d+(?:\.\d+)?) ?s\b/i;
const QUOTA = /\b(budget|quota)\b/i;
const FINAL = new Set([400, 401, 403, 404, 413, 422]);

export function problemOf(error: unknown): Problem {
  if (!(error instanceof ApiError)) {
    const why = error instanceof Error ? error.message : String(error);
    return { why: `This page failed: ${why}`, advice: "Reload it.", retryable: false, waitSeconds: 0 };
  }
  const quota = error.body.code === "insufficient_quota";
  return {
    why: sentence(error.message),
    advice: quota || SAYS_WHEN.test(error.message) ? "" : adviceOn(error.status),
    retryable: !FINAL.has(error.status) && !quota,
    waitSeconds: error.retryAfter ?? 0,
    quota,
  };
}

function adviceOn(status: number): string {
  return ADVICE[status] ?? (status >= 500 ? "Retry; if it goes on, see the server's log." : "");
}

/** What an answer's own `error` says. One that a limit refused says so in its words alone. */
export function answerProblem({ error, status, content, created }: Message, now = Date.now() / 1000): Problem {
  const unsaid = status === "interrupted" ? "The server or its engine went away." : "The model failed and gave no reason.";
  const wait = Number(SAYS_WHEN.exec(error ?? "")?.[1] ?? 0);
  return {
    why: sentence(error || unsaid),
    advice: content ? "What was written is kept." : "",
    retryable: true,
    waitSeconds: Math.min(wait, Math.max(0, created + wait - now)),
    quota: QUOTA.test(error ?? ""),
  };
}

function sentence(text: string): string {
  const trimmed = text.trim();
  return /[.!?…]$/.test(trimmed) ? trimmed : `${trimmed}.`;
}
