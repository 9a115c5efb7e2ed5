"""The dashboard's server: read only, loopback only, its own pages and the runs given, and nothing else."""

import http.client
import json
import os
import socket
import threading
import time
from pathlib import Path
from urllib.parse import quote, urlencode

import numpy as np
import pytest
from lamina.cli import main
from lamina.errors import BusyError, ConfigError, MissingDataError
from lamina.monitoring import Dashboard, Recorder, inspect_run, read_table
from made_runs import NASTY, finish, make_run, step_row


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "one")
    finish(make_run(folder / "two", name="second"))
    make_run(folder / "group" / "three", name=NASTY)
    (folder / "empty").mkdir()
    (folder / "not-a-run").write_text("x")
    return folder


@pytest.fixture(scope="module")
def page(runs):
    with Dashboard(runs) as page:
        yield page


def ask(page: Dashboard, target: str, method: str = "GET", headers=None, body=None):
    port = int(page.url.rsplit(":", 1)[1].strip("/"))
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.request(method, target, body, headers or {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer, content


def document(page: Dashboard, path: str, **query):
    answer, content = ask(page, f"{path}?{urlencode(query)}")
    assert answer.status == 200, content
    return json.loads(content)


def test_the_list_names_every_run_below_the_folder(page, runs):
    found = {run["id"]: run for run in document(page, "/api/runs")["runs"]}
    assert list(found) == ["group/three", "one", "two"]
    assert [run["name"] for run in found.values()] == [NASTY, "demo", "second"]
    assert (found["one"]["state"], found["two"]["state"]) == ("interrupted", "finished")
    assert found["two"]["held_out"] == 0.875
    row = [row for row in read_table(runs / "one" / "metrics.jsonl") if row["kind"] == "step"][-1]
    assert found["one"]["entries"] == sum(layer["entries"] for layer in row["layers"].values())
    assert found["one"]["examples"] == row["examples"]


def test_a_document_agrees_with_the_inspection(page, runs):
    run, found = document(page, "/api/run", id="two"), inspect_run(runs / "two")
    assert run["run"] == "second"
    figures = {name: value for name, value, _ in run["figures"]}
    assert figures["entries"] == f"{found['totals']['entries']:,}"
    assert figures["examples"] == f"{found['recorded']['examples']:,}"
    assert run["layers"]["foot"][1] == f"{found['totals']['entries']:,}"


def test_a_document_follows_a_growing_run_and_its_end(tmp_path):
    folder = make_run(tmp_path / "live", steps=3, committed=0)
    for path in folder.iterdir():
        if path.name != "config.yaml":
            path.unlink()
    with Dashboard(tmp_path) as page, Recorder(folder, "live", "classification") as recorder:
        for step in range(1, 6):
            recorder.step(step_row(step))
            run = document(page, "/api/run", id="live")
            assert run["charts"][2]["series"][0]["x"] == [4 * s for s in range(1, step + 1)]
        finish(folder, steps=5)
        assert document(page, "/api/run", id="live")["state"] == "finished"
        assert document(page, "/api/runs")["runs"][0]["state"] == "finished"


def test_what_has_not_changed_is_not_sent_again(page):
    answer, _ = ask(page, "/api/runs")
    tag = answer.headers["ETag"]
    again, content = ask(page, "/api/runs", headers={"If-None-Match": tag})
    assert (again.status, content) == (304, b"")


OUTSIDE = ["../one", "/etc/passwd", "one/../../x", "one/", "./one", "", "%2e%2e", "one\0", NASTY, "no"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_runs_are_names_never_paths(page, name):
    for path in ("/api/run", "/api/what-if", "/api/explain"):
        answer, content = ask(page, f"{path}?id={quote(name)}")
        assert answer.status in (404, 422)
        assert "error" in json.loads(content)
        assert b"root:" not in content


@pytest.mark.parametrize(
    "target",
    [
        "/../../etc/passwd",
        "/..%2f..%2fetc/passwd",
        "//etc/passwd",
        "/page/app.js",
        "/dom.js/../../x",
        "/api",
        "/api/run/one",
        "/report.html",
        "/one/config.yaml",
        "/index.html",
        "/%00",
        "/\\",
    ],
)
def test_only_its_own_pages_are_served(page, target):
    assert ask(page, target)[0].status == 404


def test_links_out_of_the_folder_are_not_followed(tmp_path):
    secret = make_run(tmp_path / "secret")
    (tmp_path / "password").write_text('{"kind": "hunter2"')
    runs = tmp_path / "runs"
    make_run(runs / "good")
    (runs / "linked").symlink_to(secret)
    table = make_run(runs / "table") / "metrics.jsonl"
    table.unlink()
    table.symlink_to(tmp_path / "password")
    chunk = next(make_run(runs / "chunk").rglob("memory/**/keys/c.0.0"))
    chunk.unlink()
    chunk.symlink_to(tmp_path / "password")
    with Dashboard(runs) as page:
        _, listed = ask(page, "/api/runs")
        assert [run["id"] for run in json.loads(listed)["runs"]] == ["chunk", "good", "table"]
        assert b"hunter2" not in listed
        for name in ("table", "chunk"):
            answer, content = ask(page, f"/api/run?id={name}")
            assert answer.status == 422
            assert "outside" in json.loads(content)["error"]
            assert b"hunter2" not in content


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "X"])
def test_nothing_can_be_written(page, runs, method):
    before = {str(path): path.stat().st_mtime_ns for path in runs.rglob("*")}
    answer, _ = ask(page, "/api/run?id=one", method, body=b"x" * 100)
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    assert {str(path): path.stat().st_mtime_ns for path in runs.rglob("*")} == before


def test_a_look_writes_nothing_and_takes_no_lock(page, runs):
    before = {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in runs.rglob("*")}
    document(page, "/api/runs")
    document(page, "/api/run", id="one")
    assert {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in runs.rglob("*")} == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "", "127.0.0.1", "localhost:1"])
def test_foreign_names_of_this_machine_are_refused(page, host):
    answer, content = ask(page, "/api/runs", headers={"Host": host})
    assert answer.status == 403
    assert b"one" not in content.replace(b"only", b"")


def test_long_requests_are_refused(page):
    assert ask(page, "/api/run?id=" + "a" * 5000)[0].status == 414
    assert ask(page, "/?" + "&".join("a=b" for _ in range(300)))[0].status == 200
    assert ask(page, "/" + "a" * 100_000)[0].status in (414, 431)


@pytest.mark.parametrize("target", ["/", "/app.js", "/plotly.js", "/api/runs", "/nowhere"])
def test_every_answer_carries_the_policies(page, target):
    answer, content = ask(page, target)
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert policy["frame-ancestors"] == policy["form-action"] == policy["base-uri"] == "'none'"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in answer.headers
    head, nothing = ask(page, target, "HEAD")
    assert (head.status, nothing) == (answer.status, b"")
    assert int(head.headers["Content-Length"]) == len(content)


def test_the_page_names_nothing_outside_itself(page):
    _, content = ask(page, "/")
    assert b"http" not in content.replace(b"http-equiv", b"")
    assert b"<script>" not in content  # the policy would not run it


def test_only_loopback_is_served(page):
    assert page._server._server.server_address[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("query", "part"),
    [
        ({"index": "-1"}, "index: expected a whole number"),
        ({"index": "9" * 40}, "index: expected a whole number"),
        ({"count": "1000000"}, "count: expected a whole number from 0 to 50"),
        ({}, "explains nothing"),
    ],
)
def test_questions_are_bounded(runs, query, part):
    explain = (lambda *_, **__: {}) if query else None
    with Dashboard(runs, explain=explain) as page:
        answer, content = ask(page, "/api/explain?" + urlencode({"id": "one", **query}))
        assert answer.status in (404, 422)
        assert part in json.loads(content)["error"]


def test_slow_questions_are_answered_one_at_a_time(runs):
    at_work, most = [0], [0]

    def slow(_: Path) -> dict:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        time.sleep(0.02)
        at_work[0] -= 1
        return {"layers": {}}

    with Dashboard(runs, what_if=slow) as page:
        threads = [
            threading.Thread(target=document, args=(page, "/api/what-if"), kwargs={"id": "one"})
            for _ in "abc"
        ]
        for thread in threads:
            thread.start()
        assert document(page, "/api/run", id="one")["run"] == "demo"  # others do not wait for them
        for thread in threads:
            thread.join()
    assert most == [1]


def test_a_hanging_client_blocks_nobody(page):
    port = int(page.url.rsplit(":", 1)[1].strip("/"))
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(b"GET / HTTP/1.1\r\n")  # and never the rest
        document(page, "/api/runs")


@pytest.mark.parametrize("damage", ["config", "table", "head", "summary", "binary", "gone"])
def test_a_damaged_run_is_told_and_the_others_shown(tmp_path, damage):
    make_run(tmp_path / "good")
    bad = make_run(tmp_path / "bad")
    if damage == "config":
        (bad / "config.yaml").write_text("a: [")
    elif damage == "table":
        (bad / "metrics.jsonl").write_bytes(b"{not json\n" + (bad / "metrics.jsonl").read_bytes() + b"{}\n")
    elif damage == "head":
        (bad / "memory/HEAD.json").write_text("{}")
    elif damage == "summary":
        (bad / "summary.json").write_text("[]")
    elif damage == "binary":
        (bad / "metrics.jsonl").write_bytes(os.urandom(5000) + b"\n")
    with Dashboard(tmp_path) as page:
        if damage == "gone":
            document(page, "/api/run", id="bad")
            for path in sorted(bad.rglob("*"), reverse=True):
                path.rmdir() if path.is_dir() else path.unlink()
        lines = {run["id"]: run for run in document(page, "/api/runs")["runs"]}
        assert lines["good"]["problem"] is None
        answer, content = ask(page, "/api/run?id=bad")
        if damage == "gone":
            assert (answer.status, list(lines)) == (404, ["good"])
        elif damage == "config":
            assert answer.status == 422
            assert "config.yaml is damaged" in json.loads(content)["error"]
        else:
            assert json.loads(content)["problems"]
        if damage != "gone":
            assert lines["bad"]["state"] == "damaged"
        assert document(page, "/api/run", id="good")["problems"] == []


def test_a_hundred_runs_are_listed_and_only_changes_read_again(tmp_path, monkeypatch):
    one = make_run(tmp_path / "runs" / "000", steps=3)
    content = {path.relative_to(one): path.read_bytes() for path in one.rglob("*") if path.is_file()}
    for number in range(1, 100):
        for path, text in content.items():
            target = tmp_path / "runs" / f"{number:03d}" / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text)
    with Dashboard(tmp_path / "runs") as page:
        assert len(document(page, "/api/runs")["runs"]) == 100
        reads = []

        def facts(name: str, _: Path) -> dict:
            reads.append(name)
            return {"id": name, "problem": None}

        monkeypatch.setattr("lamina.monitoring.watched._facts", facts)
        os.utime(tmp_path / "runs/042/metrics.jsonl")
        assert len(document(page, "/api/runs")["runs"]) == 100
        assert reads == ["042"]


def test_a_long_table_is_shown_as_a_sample_until_it_is_read(tmp_path, monkeypatch):
    folder = make_run(tmp_path / "long", steps=500)
    monkeypatch.setattr("lamina.monitoring.watched._AT_ONCE_BYTES", 1000)
    monkeypatch.setattr("lamina.monitoring.watched._SETTLE_SECONDS", 0.2)
    release = threading.Event()
    monkeypatch.setattr("lamina.monitoring.watched.WatchedRun._read", held(release))
    with Dashboard(tmp_path) as page:
        coarse = document(page, "/api/run", id="long")
        assert coarse["coarse"]
        assert [chart["key"] for chart in coarse["charts"]] == [
            "accuracy",
            "loss",
            "entries",
            "bytes",
            "throughput",
        ]
        release.set()
        until = time.monotonic() + 20
        while (whole := document(page, "/api/run", id="long"))["coarse"]:
            assert time.monotonic() < until
        rows = [row for row in read_table(folder / "metrics.jsonl") if row["kind"] == "step"]
        line = whole["compare"]["loss"]
        np.testing.assert_array_equal(line["y"], [row["loss"] for row in rows])


def held(release: threading.Event):
    from lamina.monitoring.watched import WatchedRun

    read = WatchedRun._read

    def wait_and_read(run: WatchedRun) -> None:
        release.wait(20)
        read(run)

    return wait_and_read


def test_the_folder_of_one_run_is_shown_too(tmp_path):
    with Dashboard(make_run(tmp_path / "only")) as page:
        [run] = document(page, "/api/runs")["runs"]
        assert document(page, "/api/run", id=run["id"])["run"] == "demo"


def test_ports_and_folders_that_cannot_be_served(page, tmp_path):
    port = int(page.url.rsplit(":", 1)[1].strip("/"))
    with pytest.raises(BusyError, match=rf"^port {port} is in use"):
        Dashboard(tmp_path, port)
    with pytest.raises(ConfigError, match=r"^port 65536: expected 0"):
        Dashboard(tmp_path, 65536)
    with pytest.raises(MissingDataError, match="expected a folder of runs"):
        Dashboard(tmp_path / "nowhere")


def test_the_command_prints_its_address_and_ends(runs, capsys):
    assert main(["dashboard", str(runs), "--port", "0", "--seconds", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["url"].startswith("http://127.0.0.1:")
