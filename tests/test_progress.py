"""What long computations tell, and whom."""

import re
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import optlearn as ol
from optlearn import _progress
from optlearn._errors import count_of
from optlearn._progress import Progress, in_words, shown, silent, the_only_display


def test_in_words() -> None:
    assert str(Progress("tracing")) == "tracing"
    assert str(Progress("trained", done=2, total=5)) == "trained (2/5)"
    told = Progress("indirect, from neutral", iteration=3, objective=0.25, gap=1e-3)
    assert str(told) == "indirect, from neutral, iteration 3, objective 0.25, gap 1.0e-03"


def test_durations_in_words() -> None:
    assert [in_words(s) for s in (0.2, 59, 150, 8000)] == ["1 s", "59 s", "2 min", "2 h"]
    assert str(Progress("compiled", expected=200.0)) == "compiled, about 3 min left"


def test_nobody_is_told_in_a_pipe_unless_asked(capsys: pytest.CaptureFixture[str]) -> None:
    with shown(None) as tell:
        assert tell is silent
    with shown(False) as tell:
        assert tell is silent
    with shown(True) as tell:
        tell(Progress("at work"))
        text, deadline = "", time.monotonic() + 30  # a busy machine may show it late
        while "at work" not in text and time.monotonic() < deadline:
            time.sleep(0.05)
            text += capsys.readouterr().err
    assert re.search(r"optlearn: at work \(\d+ s\)", text)
    told: list[Progress] = []
    with shown(told.append) as tell:
        tell(Progress("here"))
    assert told == [Progress("here")]


def test_somebody_watches_a_terminal_where_nothing_is_shown_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(_progress.VARIABLE, raising=False)
    monkeypatch.setattr(_progress.sys, "stderr", types.SimpleNamespace(isatty=lambda: True))
    assert _progress._somebody_watches()
    with the_only_display():
        assert not _progress._somebody_watches()
    monkeypatch.setenv(_progress.VARIABLE, "0")
    assert not _progress._somebody_watches()


def test_a_bar_comes_after_some_seconds_and_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    shown_at: list[str] = []

    @contextmanager
    def screen() -> Iterator[_progress.Screen]:
        yield lambda news, seconds, expected: shown_at.append(f"{news.text} {expected is not None}")
        shown_at.append("gone")

    monkeypatch.setattr(_progress, "_in_terminal", screen)
    monkeypatch.setattr(_progress, "_somebody_watches", lambda: True)
    with shown(None) as tell:  # it takes no time: nothing is shown
        tell(Progress("quick"))
    assert shown_at == []
    monkeypatch.setattr(_progress, "PATIENCE", 0.02)
    with shown(None) as tell:
        tell(Progress("slow", expected=5.0))
        time.sleep(0.1)
    assert shown_at == ["slow True", "gone"]


def test_a_solve_takes_words_for_its_progress(capsys: pytest.CaptureFixture[str]) -> None:
    problem = ol.scenarios.denoising_batch()
    ol.solve(problem, intervals=6, starts=1, progress=False)
    assert capsys.readouterr().err == ""
    with pytest.raises(ValueError, match="progress must be"):
        ol.solve(problem, progress="yes")


def test_a_sweep_in_a_pipe_says_at_once_that_it_has_begun() -> None:
    from io import StringIO

    from rich.console import Console

    from optlearn.sweeps.run import bar

    screen = Console(file=StringIO(), width=100)
    with bar(144, screen):
        assert isinstance(screen.file, StringIO)
        assert screen.file.getvalue().startswith("0/144 solving")


def test_counts_agree_with_their_nouns() -> None:
    assert [count_of(n, "step") for n in (0, 1, 2, 1000)] == ["0 steps", "1 step", "2 steps", "1,000 steps"]
