"""Every command and program that README and docs show is run here; long ones shortened with --steps."""

import contextlib
import io
import re
import shlex
import tarfile
from pathlib import Path

import numpy as np
import pytest
from lamina.cli import main
from PIL import Image

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
TARGETS = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
STEPS = {"run": "3", "resume": "3", "fork": "3"}
WHOLE = ["run", "biography-smoke", "--run-dir", "runs/smoke"]  # short, and the commands after it need its end


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)


def commands(page: Path) -> list[list[str]]:
    lines = "\n".join(blocks(page, "sh")).splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder with small data of each kind that the pages mention."""
    folder = tmp_path_factory.mktemp("user")
    draw = np.random.default_rng(0)
    arrays = {}
    for part in ("train", "test"):
        arrays[f"x_{part}"] = draw.normal(size=(64, 8, 8)).astype(np.float32)
        arrays[f"y_{part}"] = np.arange(64) % 10
    np.savez(folder / "mine.npz", **arrays)
    rows = "".join(f"{a:.3f},{b:.3f},{int(a > b)}\n" for a, b in draw.normal(size=(64, 2)))
    (folder / "table1.csv").write_text("width,height,kind\n" + rows)
    for number in range(8):
        path = folder / "pictures" / f"class{number % 2}" / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(draw.integers(0, 255, (8, 8, 3), np.uint8)).save(path)
    write_cifar(folder / "cifar-10-binary.tar.gz", draw)
    write_fashion(folder / "fashion", draw)
    return folder


def write_cifar(path: Path, draw: np.random.Generator) -> None:
    """The official layout with 20 images a file instead of 10,000."""
    with tarfile.open(path, "w:gz") as archive:
        for name in [*(f"data_batch_{n}.bin" for n in range(1, 6)), "test_batch.bin"]:
            records = draw.integers(0, 256, (20, 3073), np.uint8)
            records[:, 0] %= 10
            add(archive, f"cifar-10-batches-bin/{name}", records.tobytes())
        add(archive, "cifar-10-batches-bin/batches.meta.txt", "\n".join("abcdefghij").encode())


def add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    archive.addfile(info, io.BytesIO(content))


def write_fashion(folder: Path, draw: np.random.Generator) -> None:
    folder.mkdir()
    for part in ("train", "t10k"):
        images = draw.integers(0, 256, (64, 28, 28), np.uint8)
        header = np.array([0x803, 64, 28, 28], ">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte").write_bytes(header + images.tobytes())
        labels = (np.arange(64) % 10).astype(np.uint8)
        header = np.array([0x801, 64], ">i4").tobytes()
        (folder / f"{part}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TFDS_DATA_DIR", str(folder / "tensorflow_datasets"))
    for words in commands(page):
        if words[0] == "make":
            assert words[1] in TARGETS
        else:
            assert words[0] == "lamina", f"{page.name} shows {shlex.join(words)}, which no test runs"
            run(words[1:])


def test_configurations_are_complete(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The YAML that pages show are configurations that run."""
    monkeypatch.chdir(folder)
    shown = [block for page in PAGES for block in blocks(page, "yaml")]
    assert shown
    for number, text in enumerate(shown):
        Path(f"shown{number}.yaml").write_text(text)
        run(["run", f"shown{number}.yaml", "--run-dir", f"runs/shown{number}"])


def run(words: list[str]) -> None:
    target = None
    if ">" in words:
        words, target = words[: words.index(">")], words[words.index(">") + 1]
    if words[0] in STEPS and words != WHOLE and "--steps" not in words and "--print-config" not in words:
        words = [*words, "--steps", STEPS[words[0]], "--quiet"]
    if words[:2] == ["run", "fashion-mnist-online"]:
        words += ["--set", "stream.folder=fashion"]
    if words[:2] == ["run", "cifar10-online-rbf"] and not Path("tensorflow_datasets/cifar10").exists():
        run(["stream", "import", "cifar10", "cifar-10-binary.tar.gz", "cifar10"])
    if words[:3] == ["stream", "import", "cifar10"] and Path("tensorflow_datasets/cifar10").exists():
        return
    if "--run-dir" in words and Path(words[words.index("--run-dir") + 1]).exists():
        words[words.index("--run-dir") + 1] += "-again"  # two pages may use one name
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(words) == 0, f"lamina {shlex.join(words)} failed"
    if target is not None:
        Path(target).write_text(output.getvalue())


def test_readme_program(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (program,) = blocks(ROOT / "README.md", "python")
    monkeypatch.chdir(folder)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(program, "README.md", "exec"), {})
    share = float(re.search(r"right before learning: ([\d.]+)", output.getvalue()).group(1))
    assert share >= 0.90


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)", page.read_text()):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
