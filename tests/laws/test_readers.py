"""Curves from what users have, and what is said of those that cannot be right."""

import gzip
import json
import os
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from optlearn._errors import SpecificationError
from optlearn.laws import Curve, LawWarning, read_curves

STEP, RATE, LOSS = [10.0, 20.0, 30.0], [1e-3, 5e-4, 1e-4], [3.0, 2.5, 2.25]


def is_the_run(curve, name=None):
    np.testing.assert_allclose(curve.step, STEP)
    np.testing.assert_allclose(curve.rate, RATE, rtol=1e-6)
    np.testing.assert_allclose(curve.loss, LOSS)
    assert name is None or curve.name == name


def write(path, header, columns):
    lines = [header, *(",".join(str(x) for x in row) for row in zip(*columns, strict=True))]
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.mark.parametrize(
    "header",
    ["step,lr,loss", "Step,learning_rate,train/loss", "_step,train/lr,loss",
     "iteration,Learning Rate,lm loss", "step,lr,Train Loss", "step,lr,val loss",
     "trainer/global_step,lr-AdamW/lr,train_loss"],
)  # fmt: skip
def test_spellings_of_columns(tmp_path, header):
    (curve,) = read_curves(write(tmp_path / "run.csv", header, (STEP, RATE, LOSS)))
    is_the_run(curve, "run")


def test_a_folder_a_list_a_frame_a_mapping(tmp_path):
    write(tmp_path / "a.csv", "step,lr,loss", (STEP, RATE, LOSS))
    write(tmp_path / "b.csv", "loss,batch,lr,step", (LOSS, [8, 8, 8], RATE, STEP))
    (tmp_path / "notes.txt").write_text("no curve")
    files = [tmp_path / "a.csv"]
    is_the_run(read_curves(files)[0], "a")
    frame = pd.DataFrame({"step": STEP, "lr": RATE, "loss": LOSS})
    for given in ({"x": frame}, {"x": {"step": STEP, "lr": RATE, "loss": LOSS}}, {"x": str(files[0])}):
        is_the_run(read_curves(given)[0], "x")
    with pytest.raises(
        SpecificationError, match="batch must be logged in all curves or in none; 'a' has none"
    ):
        read_curves(tmp_path)
    (tmp_path / "b.csv").unlink()
    assert [curve.name for curve in read_curves(tmp_path)] == ["a"]


def test_an_export_of_weights_and_biases(tmp_path):
    names = ("train/loss", "train/loss__MIN", "lr")
    columns = ["Step", *(f"calm-sun-1 - {n}" for n in names), "wild-sea-2 - train/loss", "wild-sea-2 - lr"]
    header = ",".join(f'"{column}"' for column in columns)
    # A run that logged at other steps leaves blanks.
    rows = [
        *([s, x, x, r, "", ""] for s, x, r in zip(STEP, LOSS, RATE, strict=True)),
        *([s + 5, "", "", "", x, r] for s, x, r in zip(STEP, LOSS, RATE, strict=True)),
    ]
    curves = read_curves(write(tmp_path / "export.csv", header, zip(*rows, strict=True)))
    assert [curve.name for curve in curves] == ["calm-sun-1", "wild-sea-2"]
    is_the_run(curves[0])
    np.testing.assert_allclose(curves[1].step, np.array(STEP) + 5)


def test_rates_between_the_losses(tmp_path):
    """A rate that is logged more often than the loss is known there too."""
    rows = [(10, 3e-4, 4.0), (15, 1e-4, ""), (20, 1e-4, 3.5), (25, 1e-4, ""), (27, "", ""), (30, 1e-4, 3.2)]
    curve = read_curves(write(tmp_path / "a.csv", "step,lr,loss", zip(*rows, strict=True)))[0]
    np.testing.assert_array_equal(curve.step, [10, 20, 30])
    np.testing.assert_array_equal(curve.known, [[10, 15, 20, 25, 30], [3e-4, 1e-4, 1e-4, 1e-4, 1e-4]])
    lengths, rates, _ = curve.intervals(curve.edges(curve.step, 0), 0, 1.0)
    ends = curve.ends(curve.step, 0)
    np.testing.assert_allclose(np.cumsum(lengths)[ends], curve.step)
    # From 3e-4 to 1e-4 in five steps, then constant: not halfway down at step 15.
    assert (lengths * rates)[ends[0] + 1 : ends[1] + 1].sum() == pytest.approx(5 * 2e-4 + 5 * 1e-4)
    rows[3] = (14, 1e-4, "")
    with pytest.raises(SpecificationError, match="steps must increase, but 15 is followed by 14"):
        read_curves(write(tmp_path / "b.csv", "step,lr,loss", zip(*rows, strict=True)))


def test_a_column_that_names_the_run(tmp_path):
    names = ["a"] * 3 + ["b"] * 3
    file = write(tmp_path / "all.csv", "run,step,lr,loss", (names, STEP * 2, RATE * 2, LOSS * 2))
    curves = read_curves(file)
    assert [curve.name for curve in curves] == ["a", "b"]
    is_the_run(curves[1])


def field(number, content):
    """A field of a protocol-buffer message; lengths and keys here are below 128."""
    if isinstance(content, int):
        return bytes([number << 3, content])
    if isinstance(content, float):
        return bytes([number << 3 | 5]) + struct.pack("<f", content)
    return bytes([number << 3 | 2, len(content)]) + content


def scalar(tag, value, form):
    if form == "simple":
        return field(1, field(1, tag.encode()) + field(2, value))
    content = {
        "float": field(1, 1) + field(5, struct.pack("<f", value)),
        "double": field(1, 2) + field(4, struct.pack("<d", value)),
    }[form]
    return field(1, field(1, tag.encode()) + field(8, content))


def records(*messages):
    return b"".join(struct.pack("<QI", len(m), 0) + m + bytes(4) for m in messages)


@pytest.mark.parametrize("form", ["simple", "float", "double"])
def test_event_files_of_tensorboard(tmp_path, form):
    folder = tmp_path / "first-run"
    folder.mkdir()
    events = [field(3, b"brain.Event:2")]
    for step, rate, loss in zip(STEP, RATE, LOSS, strict=True):
        events.append(field(2, int(step)) + field(5, scalar("train/lr", rate, form)))
        events.append(field(2, int(step)) + field(5, scalar("train/loss", loss, form)))
    events.append(
        field(2, 30) + field(5, field(1, field(1, b"text") + field(8, field(1, 7) + field(8, b"x"))))
    )
    whole = records(*events)
    (folder / "events.out.tfevents.1.host").write_bytes(whole + whole[:20])  # killed while it wrote
    (curve,) = read_curves(tmp_path)
    is_the_run(curve, "first-run")
    (folder / "events.out.tfevents.1.host").write_bytes(records(events[0]))
    with pytest.raises(SpecificationError, match="must hold scalars of a loss, got no scalars"):
        read_curves(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"loss": [3.0, np.nan, 2.0]}, r"curve 'x': loss is nan at step 20; if the run diverged"),
        ({"lr": [1e-3, np.nan, 1e-4]}, r"curve 'x': rate is nan at step 20; a rate is needed at every"),
        ({"step": [10, 30, 20]}, r"steps must increase, but 30 is followed by 20. If the run was restarted"),
        ({"step": [10, 10, 20]}, r"steps must increase, but 10 is followed by 10"),
        ({"loss": [0.2, 0.0, -0.1]}, r"losses must be above 0, got 0 at step 20 \(is it an accuracy"),
        ({"lr": [1e-3, -1e-3, 0]}, "rates must be at least 0, got -0.001 at step 20"),
        ({"step": [-10, 10, 20]}, "steps must be at least 0, got -10"),
        ({"batch": [8, 0, 8]}, "batch sizes must be above 0, got 0 at step 20"),
        ({"step": [10**400, 10**401, 10**402]}, "curve 'x': step must be numbers: int too large"),
        ({"loss": ["a", "b", "c"]}, "curve 'x': loss must be numbers: could not .* float: 'a'"),
        ({"loss": np.array([3.0, 2j, 1.0])}, "curve 'x': loss must be numbers: got the complex"),
        ({"loss": LOSS[:2]}, r"columns must be lists of one length, got the shapes .*lr \(3,\), loss \(2,\)"),
        ({"run": ["a", "b"]}, r"columns must be lists of one length"),
        ({"lr": None}, "curve 'x' must have a column lr or learning_rate or learning rate, got step, loss"),
        ({"loss": None}, "curve 'x' must have a column loss, got step, lr"),
    ],
)
def test_curves_that_cannot_be_right(change, message):
    columns = {"step": STEP, "lr": RATE, "loss": LOSS} | change
    with pytest.raises(SpecificationError, match=message):
        read_curves({"x": {name: values for name, values in columns.items() if values is not None}})


def test_columns_of_a_curve_are_real_numbers():
    is_the_run(Curve("x", STEP, RATE, LOSS))
    with pytest.raises(SpecificationError, match="curve 'x': loss must be real numbers"):
        Curve("x", np.array(STEP), np.array(RATE), np.array(LOSS) * 1j)
    with pytest.raises(SpecificationError, match="curve 'x': between must be real numbers"):
        Curve("x", np.array(STEP), np.array(RATE), np.array(LOSS), None, (np.array([15.0]), np.array([1j])))
    with pytest.raises(SpecificationError, match="curve 'x': step must be real numbers: int too large"):
        Curve("x", [1, 2, 10**400], RATE, LOSS)
    for what, between in (("steps", ([15.0, np.nan], [1.0, 1.0])), ("rates", ([15.0, 16.0], [1.0, np.nan]))):
        with pytest.raises(SpecificationError, match=f"{what} between the losses .*, got nan in row 2"):
            Curve("x", STEP, RATE, LOSS, None, between)


@pytest.mark.parametrize("form", ["text", "frame", "events"])
def test_validation_losses_win_unless_there_are_few(tmp_path, form):
    """Losses of both kinds, the validation loss in rows of its own and seldom, as in public logs."""

    def read(every):
        losses = {s: ("val_loss", 3 - s / 100) for s in range(every, 81, every)}
        rows = [(s, "train_loss", 4 - s / 100) for s in range(1, 81)]
        rows = sorted(rows + [(s, *loss) for s, loss in losses.items()])
        if form == "text":
            source = tmp_path / "run.txt"
            source.write_text("".join(f"step:{s}/80 {kind}:{x:.4f} train_time:4ms\n" for s, kind, x in rows))
        elif form == "events":
            source = tmp_path / "events.out.tfevents.1.host"
            events = [field(2, s) + field(5, scalar(kind, x, "double")) for s, kind, x in rows]
            source.write_bytes(records(*events))
        else:
            kinds = ("train_loss", "val_loss")
            table = {kind: [x if kind == own else np.nan for _, own, x in rows] for kind in kinds}
            source = pytest.importorskip("pandas").DataFrame({"step": [row[0] for row in rows], **table})
        (curve,) = read_curves({"run": source}, rates={"run": np.full(80, 1e-3)})
        return curve

    often, seldom = read(10), read(11)
    np.testing.assert_array_equal(often.step, np.arange(10, 81, 10))
    np.testing.assert_allclose(often.loss, 3 - often.step / 100)
    np.testing.assert_array_equal(seldom.step, np.arange(1, 81))
    np.testing.assert_allclose(seldom.loss, 4 - seldom.step / 100)


def test_losses_are_of_one_kind_in_all_runs():
    """One run with too few validation losses, and all are read with their training losses."""
    step = np.arange(10.0, 101.0, 10)
    runs = {
        name: {"step": step, "lr": 0 * step + 1e-3, "loss": 0 * step + 3.0, "val_loss": val}
        for name, val in (("a", [f"{2.5}"] * 10), ("b", ["2.5"] * 7 + [""] * 3))
    }
    assert [set(curve.loss.tolist()) for curve in read_curves(runs)] == [{3.0}, {3.0}]
    assert set(read_curves({"a": runs["a"]})[0].loss.tolist()) == {2.5}


def test_a_table_alone_is_a_run():
    columns = {"step": STEP, "lr": RATE, "loss": LOSS}
    is_the_run(read_curves(columns)[0], "run")
    is_the_run(read_curves(pytest.importorskip("pandas").DataFrame(columns))[0], "run")


def test_a_run_that_diverged_and_one_that_is_shorter():
    """Neither is taken for one in another unit."""
    step = np.arange(100.0, 2001.0, 100.0)
    runs = {"whole": {"step": step, "lr": 0 * step + 1e-3, "loss": 30 / np.sqrt(step)}}
    runs["short"] = {name: values[:8] for name, values in runs["whole"].items()}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(read_curves(runs)) == 2
    runs["short"] = runs["short"] | {"loss": np.append(runs["short"]["loss"][:6], [1e3, 1e6])}
    with pytest.raises(
        SpecificationError, match=r"curve 'short': the run diverged: its loss was 1.22.* 1e\+06"
    ):
        read_curves(runs)


@pytest.mark.parametrize("seed", range(20))
def test_noise_of_single_batches_is_no_difference_of_units(seed):
    rng = np.random.default_rng(seed)
    step = np.arange(1.0, 2001.0)
    loss = 2 + 3 / np.sqrt(step + 100)
    runs = {
        name: {"step": step, "lr": 0 * step + 1e-3, "loss": loss * np.exp(0.12 * rng.standard_normal(2000))}
        for name in "abcd"
    }
    assert len(read_curves(runs)) == 4
    runs["d"]["loss"] *= 1.6 / np.log(2)
    with pytest.raises(SpecificationError, match="losses of one network in one unit"):
        read_curves(runs)


def test_gzipped_tables(tmp_path):
    plain = write(tmp_path / "run.csv", "step,lr,loss", (STEP, RATE, LOSS))
    packed = tmp_path / "packed" / "run.csv.gz"
    packed.parent.mkdir()
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    is_the_run(read_curves(packed)[0], "run")
    is_the_run(read_curves(packed.parent)[0], "run")
    for damaged in (packed.read_bytes()[:-12], b"step,lr,loss"):
        packed.write_bytes(damaged)
        with pytest.raises(SpecificationError, match=r"run\.csv\.gz cannot be read as CSV"):
            read_curves(packed)


def rows_of(separator, *more):
    return [separator.join(str(x) for x in row) for row in (*zip(STEP, RATE, LOSS, strict=True), *more)]


@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_forms_of_tables(tmp_path, separator):
    """Separators, comments, capitals, the words for a blank, and a header that a resumed run repeats."""
    header = separator.join(("step", "lr", "loss"))
    blanks = [(5, 2e-3, word) for word in ("None", "null", "N/A", "nan", "")]
    for i, blank in enumerate(blanks):
        first, *rest = rows_of(separator)
        lines = ["# my run, 2 GPUs", "", header, separator.join(map(str, blank)), first, header, *rest]
        file = tmp_path / f"{i}" / "RUN.CSV"
        file.parent.mkdir()
        file.write_text("\n".join(lines) + "\n")
        (curve,) = read_curves(file.parent)
        is_the_run(curve, "RUN")
        np.testing.assert_array_equal(curve.between, [[5.0], [2e-3]])
    file.write_text("\n".join(["# my run", header, *rows_of(separator, (40, 1e-4, "nan"))]) + "\n")
    with pytest.raises(SpecificationError, match="loss is nan at step 40; if the run diverged"):
        read_curves(file)
    for cell in ("3,6342", "1,000", "12k", "-", "0.1%"):
        file.write_text("\n".join(["# my run", header, *rows_of(separator, (40, 1e-4, f'"{cell}"'))]) + "\n")
        with pytest.raises(SpecificationError, match=rf"RUN\.CSV: line 6: loss must be .* got '{cell}'"):
            read_curves(file)
    file.write_bytes("\n".join([header, *rows_of(separator)]).encode("utf-16"))
    with pytest.raises(SpecificationError, match=r"RUN\.CSV must be text in UTF-8: save it as UTF-8"):
        read_curves(file)


@pytest.mark.parametrize(
    ("name", "head", "form", "cuts"),
    [
        ("run.csv", "step,lr,loss\n", "{s},{r:.2e},{x:.3f}",
         ("40", "40,1.0", "40,1.00e-04,", "40,1.00e-04,2.2")),
        ("run.log", "a run\n", "step {s} loss {x:.3f} lr {r:.2e}",
         ("step 40 loss 2.2", "step 40 loss 2.200 lr 1.00e-")),
    ],
)  # fmt: skip
def test_a_file_that_is_being_written(tmp_path, name, head, form, cuts):
    """A last line without a line end is left out, unless it is as long as those before."""
    file = tmp_path / name
    whole = head + "\n".join(form.format(s=s, r=r, x=x) for s, r, x in zip(STEP, RATE, LOSS, strict=True))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        file.write_text(whole)
        is_the_run(read_curves(file)[0], "run")
    for cut in cuts:
        file.write_text(f"{whole}\n{cut}")
        with pytest.warns(LawWarning, match=rf"{name}: line 5 has no line end and may be half written"):
            is_the_run(read_curves(file)[0], "run")


def test_what_is_no_curve(tmp_path):
    for given, message in (
        (tmp_path / "none", "there is no file or folder"),
        (tmp_path, "holds neither .csv files nor TensorBoard events"),
        (3, "must be a folder, or map names to files or tables, got int"),
        ({}, "at least one loss curve"),
        ({"x": 3}, "curve 'x' must be a file or a table, got int"),
        ({"x": {"step": STEP[:2], "lr": RATE[:2], "loss": LOSS[:2]}}, "at least 3 points, got 2"),
    ):
        with pytest.raises(SpecificationError, match=message):
            read_curves(given)
    (tmp_path / "short.csv").write_text("step,lr,loss\n1,2\n")
    with pytest.raises(SpecificationError, match="line 2 must have 3 fields, got 2"):
        read_curves(tmp_path)
    with pytest.raises(SpecificationError, match="curve 'x': there is no file"):
        read_curves({"x": tmp_path / "none.csv"})


def test_dense_logs_are_averaged():
    steps = np.arange(1.0, 2001.0)
    dense = Curve("dense", steps, np.ones(2000), np.exp(np.tile([0.0, 0.2], 1000)))
    at, loss = dense.binned(0)
    assert len(at) == 400
    assert at[0] == 3.0
    np.testing.assert_allclose(np.log(loss), [0.08, 0.12] * 200)


def test_blanks_of_a_frame_are_missing_values():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(
        {"step": [5, *STEP], "lr": [2e-3, *RATE], "loss": [np.nan, *LOSS], "other": [1.0, np.nan, 2.0, 3.0]}
    )
    (read,) = read_curves({"x": frame})
    is_the_run(read, "x")
    np.testing.assert_array_equal(read.between, ([5.0], [2e-3]))


def test_the_state_of_a_hugging_face_trainer(tmp_path):
    """The form of ``TrainerState.save_to_json``, written by hand, with an evaluation in between."""
    history = [
        {"epoch": 0.1, "grad_norm": 1.5, "learning_rate": rate, "loss": loss, "step": step}
        for step, rate, loss in zip(STEP, RATE, LOSS, strict=True)
    ]
    history.insert(1, {"epoch": 0.1, "eval_loss": 3.3, "eval_runtime": 0.1, "step": STEP[0]})
    history.append({"epoch": 1.0, "total_flos": 1.0, "train_loss": 2.5, "step": STEP[-1]})
    folder = tmp_path / "checkpoint-30"
    folder.mkdir()
    (folder / "trainer_state.json").write_text(json.dumps({"global_step": 30, "log_history": history}))
    (curve,) = read_curves(tmp_path)
    is_the_run(curve, "checkpoint-30")
    for text, got in (
        ("{}", "got {}"),
        ('{"log_history": null}', "None"),
        ("[1]", r"\[1\]"),
        ("{", "Expecting"),
    ):
        (folder / "trainer_state.json").write_text(text)
        with pytest.raises(SpecificationError, match=rf"trainer_state\.json with a log_history.*{got}"):
            read_curves(tmp_path)


def test_checkpoints_of_a_run(tmp_path):
    """Each holds the log so far: they are one run, of the last one, or of the state at the end."""
    entries = [{"learning_rate": r, "loss": x, "step": s} for s, r, x in zip(STEP, RATE, LOSS, strict=True)]

    def save(folder, count):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "trainer_state.json").write_text(json.dumps({"log_history": entries[:count]}))

    for run in "ab":
        save(tmp_path / run / "checkpoint-900", 2)
        save(tmp_path / run / "checkpoint-1000", 3)
    for curve, name in zip(read_curves(tmp_path), "ab", strict=True):
        is_the_run(curve, name)
    save(tmp_path / "a" / "checkpoint-1000", 1)
    save(tmp_path / "a", 3)
    is_the_run(read_curves(tmp_path / "a")[0], "a")


def test_names_that_clash(tmp_path):
    """The shortest ends of paths that differ; names that do not clash stay short."""
    for name in ("A/version_0/metrics.csv", "B/version_0/metrics.csv", "x/log.csv", "y/log.csv", "z/one.csv"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        write(tmp_path / name, "step,lr,loss", (STEP, RATE, LOSS))
    expected = ["A/version_0", "B/version_0", "x/log", "y/log", "one"]
    assert [curve.name for curve in read_curves(tmp_path)] == expected
    files = [tmp_path / "x" / "log.csv", tmp_path / "y" / "log.csv"]
    assert [curve.name for curve in read_curves(files)] == ["x/log", "y/log"]
    with pytest.raises(SpecificationError, match="different names, got log, log"):
        read_curves(files[:1] * 2)
    frame = pd.DataFrame({"step": STEP, "lr": RATE, "loss": LOSS})
    assert [curve.name for curve in read_curves([frame, frame])] == ["run 1", "run 2"]
    assert [curve.name for curve in read_curves([frame])] == ["run"]


def test_event_files_of_a_run_that_was_resumed(tmp_path):
    """They are one run; the later file has the steps that were done twice."""

    def events(rows):
        return records(
            *(
                field(2, s) + field(5, scalar("loss", x, "double") + scalar("lr", 1e-3, "double"))
                for s, x in rows
            )
        )

    folder = tmp_path / "resumed"
    folder.mkdir()
    (folder / "events.out.tfevents.1.host").write_bytes(events([(10, 3.0), (20, 2.7), (30, 9.0)]))
    (folder / "events.out.tfevents.2.host").write_bytes(events([(30, 2.5), (40, 2.4)]))
    for given in (tmp_path, {"resumed": folder}):
        (curve,) = read_curves(given)
        assert curve.name == "resumed"
        np.testing.assert_array_equal(curve.step, [10, 20, 30, 40])
        np.testing.assert_array_equal(curve.loss, [3.0, 2.7, 2.5, 2.4])


def test_metrics_of_lightning(tmp_path):
    """The form of CSVLogger with a LearningRateMonitor, written by hand: rates are in rows of their own."""
    lines = ["epoch,lr-AdamW,step,train_loss,val_loss"]
    for step, rate, loss in zip(STEP, RATE, LOSS, strict=True):
        lines += [f",{rate},{step},,", f"0,,{step},{loss},"]
    folder = tmp_path / "version_0"
    folder.mkdir()
    (folder / "metrics.csv").write_text("\n".join([*lines, f"0,,{STEP[-1]},,3.1"]) + "\n")
    (curve,) = read_curves(tmp_path)
    is_the_run(curve, "version_0")
    assert curve.between is None


def test_plain_text(tmp_path):
    """With the program's source at its head, as in public logs; rates in it, or given."""
    code = "print(f'step:{step} val_loss:{loss:.4f} lr:{lr}')\nstep = 3\n"
    pairs = list(zip(STEP, RATE, LOSS, strict=True))
    logged = tmp_path / "logged.log"
    logged.write_text(
        code + "".join(f"step {s} | loss {x} | lr {r:.2e} | tok/s 181000\n" for s, r, x in pairs)
    )
    is_the_run(read_curves(logged)[0], "logged")
    bare = tmp_path / "bare.txt"
    bare.write_text(code + "".join(f"step:{s}/30 val_loss:{x:.4f} train_time:4ms\n" for s, _, x in pairs))
    with pytest.raises(
        SpecificationError, match=r"must have a column lr .*rates=\{name: one for every step\}"
    ):
        read_curves(bare)
    every = np.interp(np.arange(1, STEP[-1] + 1), STEP, RATE)
    for rates in (every, lambda step: every[int(step) - 1]):
        is_the_run(read_curves(bare, rates={"bare": rates})[0], "bare")
    with pytest.raises(SpecificationError, match=r"rates\['bare'\] must be a rate for each of 30 steps"):
        read_curves(bare, rates={"bare": every[:5]})
    for value in (None, "a", 10**400):
        with pytest.raises(
            SpecificationError, match=r"rates\['bare'\] must return a number, got .* at step 10"
        ):
            read_curves(bare, rates={"bare": lambda step, value=value: value})


@pytest.mark.parametrize(
    "line",
    ["step {s:,} | loss {x}, lr {r} | eta 3m 181k tok/s", "[rank0] step={s:_},loss={x},lr={r},time=20813ms",
     "step {s} loss {x} (best loss 1.5 at step 0) lr {r} best loss 2.0",
     "iter {s}/90,000: lm loss {x}. lr {r}", "Step: {s:.3e} Loss: {x:.6E} LR: {r} | loss scale: 65536.0"],
)  # fmt: skip
def test_numbers_in_plain_text(tmp_path, line):
    pairs = zip(STEP, RATE, LOSS, strict=True)
    (tmp_path / "run.log").write_text(
        "".join(line.format(s=int(1000 * s), r=r, x=x) + "\n" for s, r, x in pairs)
    )
    (curve,) = read_curves(tmp_path)
    np.testing.assert_array_equal(curve.step, 1000 * np.array(STEP))
    np.testing.assert_array_equal((curve.rate, curve.loss), (RATE, LOSS))


@pytest.mark.parametrize(
    ("line", "got"),
    [
        ("step 12k loss 3.6 lr 1e-3", "step must be a plain number .* got '12k'"),
        ("step 1.5k loss 3.6 lr 1e-3", "step must be a plain number .* got '1.5k'"),
        ("step 1 000 loss 3.6 lr 1e-3", "step must be a plain number .* got '1 000'"),
        ("step 1,00 loss 3.6 lr 1e-3", "step must be a plain number .* got '1,00'"),
        ("step 50 loss 3,6342 lr 1e-3", "loss must be a plain number .* got '3,6342'"),
        ("step 50 loss 3,634 lr 1e-3", "loss must be a plain number .* got '3,634'"),
        ("step 50 loss 3.6 lr 0,00100", "rate must be a plain number .* got '0,00100'"),
        ("step 50 loss 3.6 lr 0.1%", "rate must be a plain number .* got '0.1%'"),
    ],
)
def test_text_that_is_glued_to_a_number(tmp_path, line, got):
    file = tmp_path / "run.log"
    file.write_text(f"a run\nstep 5 loss 4.5 lr 1e-3\n{line}\n")
    with pytest.raises(SpecificationError, match=rf"run\.log: line 3: {got}"):
        read_curves(file)


def test_the_log_of_nanogpt(tmp_path):
    """It calls steps iterations in some lines and has two losses in others."""
    file = tmp_path / "run.txt"
    with file.open("w") as log:
        for s in range(0, 90, 10):
            print(f"step {s}: train loss {4 - s / 100}, val loss {4.5 - s / 100}", file=log)
            print(f"iter {s}: loss {4 - s / 99:.4f}, time 20ms", file=log)
    (curve,) = read_curves(tmp_path, rates={"run": lambda step: 1e-3})
    np.testing.assert_array_equal(curve.step, np.arange(0, 90, 10))
    np.testing.assert_allclose(curve.loss, 4.5 - curve.step / 100)
    file.write_text("".join(f"step 5 iter {s}: loss {4 - s / 99:.4f}\n" for s in range(4)))  # two things
    with pytest.raises(SpecificationError, match="steps must increase, but 5 is followed by 5"):
        read_curves(tmp_path, rates={"run": lambda step: 1e-3})


# --- files that the real tools wrote (files/README.md) -------------------------------------------

FILES = Path(__file__).parent / "files"


def test_an_event_file_that_pytorch_wrote():
    (run,) = read_curves(FILES / "torch_run")
    assert run.name == "torch_run"
    np.testing.assert_array_equal(run.step, np.arange(5, 101, 5))
    np.testing.assert_allclose(run.loss, 2 + 3 / np.sqrt(run.step), rtol=1e-6)
    rates = 1e-3 * np.minimum(1, run.step / 20) * np.where(run.step <= 60, 1, (100.5 - run.step) / 40)
    np.testing.assert_allclose(run.rate, rates, rtol=1e-6)


def test_a_trainer_state_that_hugging_face_wrote():
    (run,) = read_curves(FILES / "huggingface")
    np.testing.assert_array_equal(run.step, np.arange(4, 41, 4))  # evaluations are no losses of training
    # After a warm-up of 4 steps, linear to 0 after 40; logged is the rate of the step that was done.
    np.testing.assert_allclose(run.rate[1:], 1e-2 * (41 - run.step[1:]) / 36, rtol=1e-6)
    assert np.all((run.loss > 1) & (run.loss < 5))


def test_metrics_that_lightning_wrote():
    (run,) = read_curves(FILES / "lightning")
    np.testing.assert_array_equal(run.step, np.arange(3, 40, 4))
    np.testing.assert_allclose(run.rate[1:], 1e-2 * (1 - run.step[1:] / 41), rtol=1e-6)


KERAS = """
import keras, numpy as np, sys
model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
model.compile(keras.optimizers.SGD(0.1), "mse")
x = np.random.default_rng(0).standard_normal((16, 3))
logger = keras.callbacks.CSVLogger(sys.argv[1])
model.fit(x, x[:, :1] + 1, batch_size=4, epochs=8, verbose=0, callbacks=[logger])
"""


def test_a_log_that_keras_writes(tmp_path):
    """It counts epochs and has no rates: both are said."""
    pytest.importorskip("jax")
    file = tmp_path / "run.csv"
    environment = {**os.environ, "KERAS_BACKEND": "jax"}
    subprocess.run([sys.executable, "-c", KERAS, str(file)], check=True, env=environment)
    with pytest.raises(SpecificationError, match=r"must have a column step.*got epoch, "):
        read_curves(file)
    frame = pd.read_csv(file)
    frame["step"] = 4 * (frame["epoch"] + 1)
    (run,) = read_curves({"run": frame}, rates={"run": lambda step: 0.1})
    assert run.step[-1] == 32
    assert np.all(np.diff(run.loss) < 0)
