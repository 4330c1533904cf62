import { api } from "./api";
import type { TurnEvent } from "./types";

export interface TurnListener {
  event(event: TurnEvent): void;
  /** The line is down; it is being tried again. */
  lost(): void;
  back(): void;
  /** The server refuses the stream: it knows no such turn, or the session has ended. */
  refused(): void;
}

/** Follows a turn's log until its last event. The turn runs on when nobody follows. */
export function followTurn(answer: string, from: number | string, listener: TurnListener): () => void {
  const source = new EventSource(api.eventsUrl(answer, from));
  source.onopen = () => listener.back();
  source.onmessage = (message: MessageEvent<string>) => {
    const event = JSON.parse(message.data) as TurnEvent;
    // Before anyone hears of it: the server closes now, and EventSource would connect again.
    if ("done" in event || "error" in event) source.close();
    listener.event(event);
  };
  source.onerror = () => {
    if (source.readyState === EventSource.CLOSED) listener.refused();
    else listener.lost();
  };
  return () => source.close();
}
