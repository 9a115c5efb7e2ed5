"""The progress line, with a clock of its own."""

import io

from lamina.monitoring import ProgressLine


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def drive(progress: ProgressLine, clock: Clock, steps: int, seconds: float = 0.5) -> None:
    for step in range(1, steps + 1):
        clock.now += seconds
        progress.update(step, 50 * step, entries=10 * step, accuracy=0.5)
    progress.close()


def test_plain_lines_come_every_few_seconds():
    out, clock = io.StringIO(), Clock()
    drive(ProgressLine(2000, stream=out, clock=clock), clock, steps=45)
    lines = out.getvalue().splitlines()
    assert [line.split(" · ")[-1] for line in lines] == ["step 20", "step 40", "step 45"]
    assert lines[0] == (
        "1,000 of 2,000 (50%) examples · accuracy 0.500 · 200 entries · 100/s · 10 s left · step 20"
    )
    assert "\r" not in out.getvalue()


def test_terminal_rewrites_one_line(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    out, clock = Terminal(), Clock()
    drive(ProgressLine(2000, stream=out, clock=clock), clock, steps=3)
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().endswith("\n")
    shown = out.getvalue().split("\r\x1b[K")[1:]
    assert len(shown) == 3
    assert all(len(line.rstrip("\n")) <= 39 for line in shown)
    assert shown[-1].startswith("150 of 2,000 (8%) examples · accuracy")


def test_terminal_is_not_rewritten_more_often_than_ten_times_a_second():
    out, clock = Terminal(), Clock()
    drive(ProgressLine(10**6, stream=out, clock=clock), clock, steps=1000, seconds=0.001)
    assert 9 <= out.getvalue().count("\r") <= 11


def test_quiet_writes_nothing():
    for out in (io.StringIO(), Terminal()):
        clock = Clock()
        drive(ProgressLine(100, stream=out, clock=clock, quiet=True), clock, steps=100)
        assert out.getvalue() == ""


def test_unknown_total_and_values():
    out, clock = io.StringIO(), Clock()
    with ProgressLine(None, stream=out, clock=clock) as progress:
        clock.now = 2.0
        progress.update(3, 60)
    assert out.getvalue() == "60 examples · 30/s · step 3\n"


def test_rate_of_a_resumed_run_counts_from_where_it_began():
    out, clock = io.StringIO(), Clock()
    with ProgressLine(1000, done=500, stream=out, clock=clock) as progress:
        clock.now = 10.0
        progress.update(60, 600)
    assert "600 of 1,000 (60%) examples · 10/s · 40 s left" in out.getvalue()


def test_rate_follows_a_slowing_memory():
    out, clock = io.StringIO(), Clock()
    progress = ProgressLine(None, stream=out, every_seconds=60, clock=clock)
    examples = 0
    for second in range(1, 121):
        clock.now = float(second)
        examples += 100 if second <= 60 else 50
        progress.update(second, examples)
    progress.close()
    first, last = out.getvalue().splitlines()
    assert "100/s" in first
    rate = next(part for part in last.split(" · ") if part.endswith("/s"))
    assert 50 <= int(rate.removesuffix("/s")) <= 52
