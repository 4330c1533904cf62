"""The log of running turns: what was appended is there after a crash, in whole lines."""

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from services.chat.turn_log import FileTurnLog

TURN = "msg_" + "a" * 32
FRAMES = st.lists(st.binary(max_size=30).filter(lambda b: b"\n" not in b), min_size=1, max_size=6)
quick = settings(deadline=None, max_examples=60)


def test_a_fresh_folder_is_made_and_holds_nothing(tmp_path: Path) -> None:
    assert FileTurnLog(tmp_path / "a" / "b").unfinished() == []


@quick
@given(FRAMES)
def test_the_next_process_finds_every_frame_that_was_appended(frames: list[bytes]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = FileTurnLog(Path(folder))
        for frame in frames:
            log.append(TURN, frame)
        assert FileTurnLog(Path(folder)).unfinished() == [(TURN, tuple(frames))]
        log.close(TURN)
        assert FileTurnLog(Path(folder)).unfinished() == []


@quick
@given(FRAMES, st.data())
def test_a_file_that_was_cut_anywhere_gives_the_frames_before_the_cut(frames: list[bytes], data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = FileTurnLog(Path(folder))
        for frame in frames:
            log.append(TURN, frame)
        (path,) = Path(folder).iterdir()
        whole = path.read_bytes()
        cut = data.draw(st.integers(0, len(whole)))
        path.write_bytes(whole[:cut])
        kept = whole[:cut].count(b"\n")
        assert FileTurnLog(Path(folder)).unfinished() == [(TURN, tuple(frames[:kept]))]
        log.close(TURN)


def test_turns_are_kept_apart_and_one_that_closes_leaves_the_others(tmp_path: Path) -> None:
    log = FileTurnLog(tmp_path)
    for i in range(3):
        log.append(f"msg_{i}", b"first")
        log.append(f"msg_{i}", b"%d" % i)
    log.close("msg_1")
    log.close("msg_1")
    log.close("msg_9")
    assert FileTurnLog(tmp_path).unfinished() == [("msg_0", (b"first", b"0")), ("msg_2", (b"first", b"2"))]


def test_an_appended_frame_is_in_the_file_before_append_returns(tmp_path: Path) -> None:
    FileTurnLog(tmp_path).append(TURN, b"x")
    assert (tmp_path / f"{TURN}.log").read_bytes() == b"x\n"


def test_only_we_can_read_what_people_say(tmp_path: Path) -> None:
    FileTurnLog(tmp_path).append(TURN, b"x")
    assert (tmp_path / f"{TURN}.log").stat().st_mode & 0o777 == 0o600


def test_a_turn_that_begins_again_has_a_log_of_its_own(tmp_path: Path) -> None:
    log = FileTurnLog(tmp_path)
    log.append(TURN, b"first")
    log.close(TURN)
    log.append(TURN, b"second")
    assert log.unfinished() == [(TURN, (b"second",))]
    log.close(TURN)
