import io

from rich.console import Console

from inference.models.progress import shown


def test_without_a_terminal_each_tenth_is_one_line() -> None:
    out = io.StringIO()
    with shown(Console(file=out)) as progress:
        for done in range(0, 1001, 7):
            progress.update("a.gguf", done, 1000)
        progress.update("a.gguf", 1000, 1000)
    assert [line.split()[1] for line in out.getvalue().splitlines()] == [str(n) for n in range(10, 101, 10)]


def test_on_a_terminal_there_is_a_bar() -> None:
    out = io.StringIO()
    with shown(Console(file=out, force_terminal=True, width=120)) as progress:
        progress.note("[from] somewhere")
        progress.update("a.gguf", 500, 1000)
    assert "[from] somewhere" in out.getvalue()
    assert "0.5/1.0 kB" in out.getvalue()
