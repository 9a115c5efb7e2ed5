"""Configurations on the command line: presets, files, settings, and what is said about mistakes in them."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from lamina.cli import main
from lamina.continual import PRESETS, override, parse_config, preset_values, read_config
from lamina.continual.config import config_values, config_yaml
from lamina.errors import ConfigError
from lamina.learners import LEARNERS
from tiny_runs import TINY, changed, command, refused

NAMES = st.text("abcdefgh_", min_size=1, max_size=4)
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.lists(NAMES)
)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_parse_and_survive_yaml(name: str) -> None:
    config = parse_config(preset_values(name))
    assert config.name == name
    assert parse_config(yaml.safe_load(config_yaml(config))) == config
    assert parse_config(json.loads(json.dumps(config_values(config)))) == config


PEOPLE = {"biography": {"people": 5}}


@pytest.mark.parametrize(
    ("stream", "phase", "told"),
    [
        ({}, {}, set()),
        (PEOPLE, {}, {"biography"}),  # somebody has set it
        ({}, {"source": "biography"}, {"biography"}),
        ({"drift": {"start": 3, "source": "teacher_student"}}, {}, {"teacher"}),
        (PEOPLE, {"biography": {"people": 16_384}}, {"biography"}),  # as if nobody had, in one of its phases
    ],
)
def test_options_of_a_source_that_nothing_reads_are_not_told(stream: Any, phase: Any, told: set[str]) -> None:
    values = preset_values("digits-online")
    values["stream"] |= stream
    values["phases"] = {"one": {}, "two": {"stream": phase}}
    config = parse_config(values)
    found = config_values(config)
    assert parse_config(found) == config
    for each in (found["stream"], *(phase["stream"] for phase in found["phases"].values())):
        assert each.keys() & {"teacher", "biography"} == told


def test_print_config_is_a_configuration(tmp_path: Path) -> None:
    arguments = ("run", "digits-online", "--set", "learner.temperature=7", "--seed", 3, "--print-config")
    printed = command(*arguments)
    (tmp_path / "printed.yaml").write_text(printed.out)
    config = parse_config(read_config(tmp_path / "printed.yaml"))
    assert (config.seed, config.learner.temperature, config.name) == (3, 7, "digits-online")
    assert parse_config(command(*arguments, "--json").json()) == config
    assert command("run", tmp_path / "printed.yaml", "--print-config").out == printed.out


@given(st.lists(NAMES, min_size=1, max_size=4), VALUES, st.dictionaries(NAMES, st.integers(), max_size=3))
def test_override_sets_one_value_and_nothing_else(path: list[str], value: object, beside: dict) -> None:
    values = {name: number for name, number in beside.items() if name != path[0]}
    before = dict(values)
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6).removesuffix("...\n").strip()
    result = override(values, [f"{'.'.join(path)}={text}"])
    assert values == before
    for name in path:
        beside, result = {n: v for n, v in result.items() if n != name}, result[name]
        assert beside == before
        before = {}
    assert result == value


def test_override_leaves_presets_alone() -> None:
    before = json.dumps(PRESETS["cifar10-online-rbf"].values)
    override(preset_values("cifar10-online-rbf"), ["stream.standardise.scale=1", "learner.memory.capacity=7"])
    assert json.dumps(PRESETS["cifar10-online-rbf"].values) == before


@settings(deadline=None)  # the first one looks up all names there are
@given(st.recursive(VALUES, lambda v: st.dictionaries(st.one_of(NAMES, st.integers()), v), max_leaves=8))
def test_whatever_stands_in_a_configuration_is_refused_in_one_line(value: object) -> None:
    for values in ({"name": value}, changed(TINY, {"stream": {"standardise": value}}), {"x": value}):
        line = _refusal(values)
        assert line is None or (len(line) > 10 and "\n" not in line)


def _refusal(values: dict) -> str | None:
    try:
        parse_config(values)
    except ConfigError as error:
        return str(error)
    return None


@pytest.mark.parametrize(
    ("setting", "parts"),
    [
        ("learner.temprature=5", ("learner.temprature", "did you mean learner.temperature?")),
        ("temperature=5", ("unknown name temperature", "did you mean learner.temperature?")),
        ("stream.standardise.men=1", ("stream.standardise.men", "stream.standardise.mean")),
        ("learner.memory.evict=oldest", ("learner.memory.evict", "eviction")),
        ("nothing.like.it=1", ("unknown name nothing", "known names: batch_size")),
        ("learner.kind=mlp", ("learner.", "belongs to another kind", "leave it out")),
        ("learner.kind=rfb", ("learner.kind", "unknown learner 'rfb'", "did you mean rbf?")),
        (
            "learner={}",
            (
                "learner.kind is missing",
                ", ".join(LEARNERS),
            ),
        ),
        ("learner={kind: rbf, temperature: 1}", ("learner.value_rate is missing", "--set")),
        ("stream.standardise={mean: 1}", ("stream.standardise.std is missing",)),
        (
            "learner={kind: decoder, rbf: {temprature: 1}}",
            ("learner.rbf.temprature", "learner.rbf.temperature?"),
        ),
        ("batch_size=0", ("batch_size", "greater than 0", "found 0")),
        ("batch_size=many", ("batch_size", "integer", "found 'many'")),
        ("batch_size=2.5", ("batch_size", "integer", "found 2.5")),
        ("precision=float16", ("precision", "'float32' or 'float64'", "found 'float16'")),
        ("seed=-1", ("seed", "greater than or equal to 0", "found -1")),
        ("seed=2147483648", ("seed", "less than", "found 2147483648")),
        ("learner.value_rate=.inf", ("learner.value_rate", "finite", "found inf")),
        ("commit.share=0", ("commit.share", "greater than 0", "found 0")),
        ("learner.memory.eviction=oldest", ("learner.memory", "set capacity too")),
        ("stream=digits", ("stream", "dictionary", "found 'digits'")),
        ("learner.blocks=[", ("learner.blocks=[", "expected a YAML value")),
        ("learner.blocks", ("learner.blocks", "expected NAME=VALUE")),
        ("=5", ("=5", "expected NAME=VALUE")),
        ("name.first=5", ("name is 'digits-online'", "nothing inside to set")),
        ("stream.source=digit", ("unknown source 'digit'", "did you mean digits")),
        ("stream.source=npz", ("'npz'", "npz:FILE")),
        ("stream.split=best", ("splits train, test", "'best'")),
        ("log=/x", ("/x", "header.json", "lamina stream build")),
    ],
)
def test_a_wrong_setting_is_refused_in_one_line(setting: str, parts: tuple[str, ...], tmp_path: Path) -> None:
    run = tmp_path / "run"
    refused(command("run", "digits-online", "--set", setting, "--run-dir", run), *parts)
    assert not run.exists()


def test_a_kept_log_is_never_dropped() -> None:
    answer = command("run", "digits-online", "--set", "log=x", "--set", "stream.drop_consumed=true")
    refused(answer, "drop_consumed", "set one only")


@pytest.mark.parametrize(
    ("name", "content", "parts"),
    [
        ("missing.yaml", None, ("missing.yaml", "no such file")),
        ("list.yml", "- 1\n- 2\n", ("list.yml", "expected a YAML mapping", "found list")),
        ("torn.yaml", "name: [1,\n2", ("torn.yaml", "expected a YAML configuration")),
        ("bytes.yaml", b"\xff\xfe\x00", ("bytes.yaml", "expected a YAML configuration")),
        ("empty.yaml", "", ("empty.yaml", "expected a YAML mapping", "found NoneType")),
        ("bare.yaml", "seed: 1\n", ("is missing", "--set")),
    ],
)
def test_a_bad_file_is_refused_in_one_line(
    name: str, content: str | bytes | None, parts: tuple[str, ...], tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    refused(command("run", tmp_path / name, "--run-dir", tmp_path / "run"), *parts)


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("run", "digits-onlin"), ("unknown preset 'digits-onlin'", "did you mean digits-online")),
        (("run", "zzzzzzzz"), ("unknown preset 'zzzzzzzz'", "presets: digits-online, ")),
        (("run",), ("PRESET|CONFIG.yaml", "see lamina run --help")),
        (("run", "digits-online", "--steps", "0"), ("--steps", "above 0", "'0'")),
        (("run", "digits-online", "--steps", "soon"), ("--steps", "above 0", "'soon'")),
        (("run", "digits-online", "--metrics-port", "http"), ("--metrics-port", "'http'")),
        (("run", "digits-online", "--seed", "x"), ("--seed", "'x'")),
        (("fly",), ("'fly'", "run", "resume")),
        ((), ("COMMAND",)),
        (("stream",), ("COMMAND", "lamina stream --help")),
        (("list", "colours"), ("'colours'", "presets", "sources")),
        (("stream", "import", "gif", "x", "y"), ("'gif'", "folder", "npz", "cifar10")),
    ],
)
def test_mistyped_arguments_are_refused_in_one_line(
    arguments: tuple[str, ...], parts: tuple[str, ...]
) -> None:
    refused(command(*arguments), *parts)


NEEDED: dict[str, dict[str, float]] = {
    "novelty": {"novelty_threshold": 1},
    "coherence": {"coherence_threshold": 0.5},
    "quantize": {"quantize_radius": 1},
    "ald": {"ald_threshold": 0.1},
    "surprise": {"surprise_least": 0, "surprise_most": 9},
}


def test_list_names_all_that_there_is() -> None:
    sections = command("list", "--json").json()
    assert set(sections) == {
        *(
            "presets",
            "scenarios",
            "sources",
            "learners",
            "feed_forwards",
            "optimisers",
            "admission",
            "eviction",
        )
    }
    assert set(sections["presets"]) == set(PRESETS)
    assert all(line for section in sections.values() for line in section.values())
    text = command("list").out
    for section, entries in sections.items():
        assert f"{section}:" in text
        assert all(f"  {name} " in text and line in text for name, line in entries.items())
        assert command("list", section, "--json").json() == {section: entries}
    for name in sections["learners"]:
        assert "unknown" not in (_refusal({**TINY, "learner": {"kind": name}}) or "")
    for name in (*sections["admission"], *sections["eviction"]):
        kind = "admission" if name in sections["admission"] else "eviction"
        memory = {kind: name, "capacity": 5, **NEEDED.get(name, {})}
        assert _refusal(changed(TINY, {"learner": {"memory": memory}})) is None


# What each command's help must speak of.
OPTIONS = {
    "run": "PRESET|CONFIG.yaml --run-dir --from --print-config --seed --set --runner --runner-option --steps "
    "--metrics-port --metrics-linger --metrics-targets --push-gateway --quiet --debug --json",
    "resume": "RUN_DIR --steps --metrics-port --metrics-linger --metrics-targets --push-gateway --quiet "
    "--debug --json",
    "fork": "RUN[@STEP] NEW_DIR --set --steps --metrics-port --quiet --debug --json",
    "list": "presets sources learners admission eviction --json --debug",
    "inspect": "RUN_DIR --deep --json --debug",
    "explain": "RUN_DIR --split --index --phase --layer --count --token --picture --debug --json",
    "generate": "RUN_DIR --prompt --words --temperature --seed --debug --json",
    "dashboard": "RUNS_DIR --port --seconds --json --debug",
    "report": "RUN_DIR --output --json --debug",
    "compare": "RUN_DIR --output --json --debug",
    "selftest": "FILE.npz --json --debug",
    "stream build": "PRESET|CONFIG.yaml LOG_DIR --seed --set --runner --runner-option --json --debug",
    "stream show": "LOG_DIR --json --debug",
    "stream import": "folder npz cifar10 cifar100 PATH NAME --data-dir --json --debug",
    "stream": "build show import",
    "": "run resume fork list inspect dashboard report selftest stream --version",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_help_speaks_of_every_option(name: str) -> None:
    answer = command(*name.split(), "--help")
    assert answer.code == 0
    assert all(option in answer.out for option in OPTIONS[name].split())
    assert max(map(len, answer.out.splitlines())) < 130


def test_help_and_mistakes_answer_without_the_heavy_libraries() -> None:
    script = """
import contextlib, io, sys
from lamina.cli import main
for line in ("--help", "run --help", "stream import --help", "run digits-onlin", "fly"):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(SystemExit):
            main(line.split())
print(*{"jax", "flax", "zarr", "pydantic", "apache_beam", "numpy", "sklearn"} & set(sys.modules))
"""
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == []


def test_a_reader_that_goes_away_ends_the_command_quietly(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        assert main(["run", "digits-online", "--print-config"]) == 1
    assert capfd.readouterr().err == ""
