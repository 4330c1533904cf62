import { beforeEach, describe, expect, it, vi } from "vitest";
import { LiveTurn } from "../src/lib/live.svelte";
import type { Message } from "../src/lib/types";

/** What the page needs of EventSource, spoken by the test. */
class FakeSource {
  static readonly CLOSED = 2;
  static last: FakeSource;
  readyState = 1;
  onopen = () => {};
  onerror = () => {};
  onmessage: (event: { data: string }) => void = () => {};

  constructor(readonly url: string) {
    FakeSource.last = this;
  }

  close(): void {
    this.readyState = FakeSource.CLOSED;
  }

  say(event: unknown): void {
    this.onmessage({ data: JSON.stringify(event) });
  }
}

const end = { ended: vi.fn(), refused: vi.fn() };

beforeEach(() => {
  vi.stubGlobal("EventSource", FakeSource);
  vi.clearAllMocks();
  vi.useFakeTimers();
});

describe("LiveTurn", () => {
  it("appends to what a continued answer held", () => {
    const turn = new LiveTurn("msg_1", "Once ", "", end);
    FakeSource.last.say({ text: "upon" });
    FakeSource.last.say({ text: " a time" });
    expect(turn.flush()).toBe("Once upon a time");
    expect(FakeSource.last.url).toBe("/api/turns/msg_1/events?from=0");
  });

  it("keeps what was seen until the replayed log has caught up", () => {
    const turn = new LiveTurn("msg_1", "", "Once upon", end);
    FakeSource.last.say({ text: "Once" });
    expect(turn.flush()).toBe("Once upon");
    FakeSource.last.say({ text: " upon a time" });
    expect(turn.flush()).toBe("Once upon a time");
  });

  it("closes the stream before it tells of the end, so that it is not opened again", () => {
    const message = { id: "msg_1" } as Message;
    end.ended.mockImplementation(() => expect(FakeSource.last.readyState).toBe(FakeSource.CLOSED));
    new LiveTurn("msg_1", "", "", end);
    FakeSource.last.say({ error: { message: "No engine" }, message });
    expect(end.ended).toHaveBeenCalledExactlyOnceWith(message);
  });

  it("calls the line lost only when it stays down", () => {
    const turn = new LiveTurn("msg_1", "", "", end);
    FakeSource.last.onerror();
    expect(turn.lost).toBe(false);
    vi.advanceTimersByTime(2000);
    expect(turn.lost).toBe(true);
    FakeSource.last.onopen();
    expect(turn.lost).toBe(false);
  });

  it("says when the server refuses the stream", () => {
    const turn = new LiveTurn("msg_1", "", "", end);
    FakeSource.last.close();
    FakeSource.last.onerror();
    expect([turn.lost, end.refused.mock.calls.length]).toEqual([true, 1]);
  });
});
