"""The package installed in three ways into fresh environments: every config is found and composes, and nothing else is
importable.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("models", "judges", "envs", "launch", "slurm", "conf")
DATA = {".yaml", ".j2", ".jsonl", ".json", ".txt", ".tsv", ".md", ".js", ".css"}

CHECK = """
import importlib.util, pathlib, sys
import gavel
from gavel.envs.registry import ENVIRONMENTS, reward_names
from gavel.launch.compose.compose import compose_config
from gavel.launch.config.groups import CONF, list_choices
from gavel.launch.compose.verbs import VERBS

mine = ["policy=external", "policy.base_url=http://127.0.0.1:1/v1", "policy.model=m"]  # what some experiments leave to their user
composed = 0
tried = set()
for verb in VERBS.values():
    words = [f"{group}=smollm2" for group in ("policy", "judge") if group in verb.groups]
    compose_config(verb.name, words)
    composed += 1
    for group in verb.groups:
        for choice in list_choices(group, [CONF]):
            if len(sys.argv) > 2 and (group, choice) in tried:
                continue
            tried.add((group, choice))
            file = CONF / group / f"{choice}.yaml"
            asks = group in ("policy", "judge") and "\\nmodel: null\\n" in file.read_text()  # whose user says the model
            more = [f"{group}.base_url=http://127.0.0.1:1/v1", f"{group}.model=m"] if asks else []
            more += ["gym.play=true"] if verb.name == "serve" and group == "policy" else []  # else a service asks no policy
            rest = [word for word in words if not word.startswith(f"{group}=")]
            left = ("vera_mh_recommended", "debug_single_gpu", "abstention_qwen3_1p7b", "reward_ablation")
            more += [f"env={env}" for env in ENVIRONMENTS if group == "reward" and "env" in verb.groups and choice in reward_names(env)]
            own = mine if group == "experiment" and "policy" in verb.groups and choice in left else []
            own = [*own, "gym.play=true"] if own and verb.name == "serve" else own
            compose_config(verb.name, [*([] if group == "experiment" else rest), f"{group}={choice}", *more, *own])
            composed += 1
home = pathlib.Path(gavel.__file__).parent.parent
for name in ("models", "judges", "envs", "launch", "conf", "slurm", "tests", "benchmarks"):
    spec = importlib.util.find_spec(name)
    places = [spec.origin or ""] + list(spec.submodule_search_locations or []) if spec else []
    assert not any(pathlib.Path(place).resolve().is_relative_to(pathlib.Path(sys.argv[1])) for place in places if place), name
print(composed, home)
"""  # noqa: E501


def installed_setuptools() -> int:
    try:
        return int(metadata.version("setuptools").split(".")[0])
    except metadata.PackageNotFoundError:
        return 0


pytestmark = pytest.mark.skipif(
    installed_setuptools() < 77, reason="building needs setuptools 77, which the extra `dev` installs"
)


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the repository as a fresh clone has it: links kept, no empty folder, nothing generated."""
    copy = tmp_path_factory.mktemp("clone") / "gavel"
    generated = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist", "data.local")

    def ignore(folder: str, names: list[str]) -> set[str]:
        left = {"runs", "tests", "benchmarks"} if Path(folder) == ROOT else set[str]()  # launch has a room named runs
        return {*generated(folder, names), *left.intersection(names)}

    shutil.copytree(ROOT, copy, symlinks=True, ignore=ignore)
    for folder in sorted((path for path in copy.rglob("*") if path.is_dir() and not path.is_symlink()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()
    return copy


def build(*words: str, where: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import setuptools.build_meta as backend; backend.{words[0]}({words[1]!r})"],
        cwd=where,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def wheel(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build("build_wheel", str(out), where=tree)
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def wheel_from_sdist(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    build("build_sdist", str(out), where=tree)
    shutil.unpack_archive(next(out.glob("*.tar.gz")), out / "unpacked", filter="data")
    (source,) = (out / "unpacked").iterdir()
    build("build_wheel", str(out), where=source)
    return next(out.glob("*.whl"))


def fresh_environment(folder: Path) -> Path:
    """Make an environment without pip whose dependencies are the running one's; return its interpreter."""
    venv.create(folder, with_pip=False, symlinks=True)
    scheme = {"base": str(folder), "platbase": str(folder)}
    site = Path(sysconfig.get_path("purelib", scheme="venv", vars=scheme))
    # Put on the path as it is, so the running environment's own .pth files (an editable gavel) do not count.
    (site / "dependencies.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return folder / "bin" / "python"


def install(python: Path, *words: str) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pip",
            "--python",
            str(python),
            "install",
            "--quiet",
            "--no-deps",
            "--no-build-isolation",
            "--no-index",
            "--disable-pip-version-check",
            *words,
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]


def check(python: Path, tree: Path, cwd: Path, *, every_verb: bool) -> tuple[int, Path]:
    """Compose each choice with the installed package, for every verb or for the first that knows it; return how many
    configs, and where the package is.
    """
    command = [python, "-I", "-c", CHECK, tree, *([] if every_verb else ["once"])]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    count, home = done.stdout.split(" ", 1)
    return int(count), Path(home.strip())


@pytest.mark.parametrize("form", ["editable", "wheel", "wheel_from_sdist"])
def test_every_config_composes_from_every_form_of_the_package(
    form: str, tree: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python = fresh_environment(tmp_path / "venv")
    install(python, *(["--editable", str(tree)] if form == "editable" else [str(request.getfixturevalue(form))]))
    count, home = check(python, tree, tmp_path, every_verb=form == "editable")
    assert home.resolve().is_relative_to(tree / "src" if form == "editable" else tmp_path / "venv")
    assert count > 20
    command = subprocess.run(
        [python.parent / "gavel", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    assert "gavel rollout experiment=demo" in command.stdout


def package_files(tree: Path) -> set[str]:
    files = {path for name in FOLDERS if (tree / name).is_dir() for path in (tree / name).rglob("*")}
    wanted = {f"gavel/{path.relative_to(tree)}" for path in files if path.suffix in DATA | {".py"}}
    return wanted | {"gavel/__init__.py", "gavel/py.typed"}


@pytest.mark.parametrize("form", ["wheel", "wheel_from_sdist"])
def test_a_wheel_holds_all_code_and_data_under_one_name_and_nothing_else(
    form: str, tree: Path, request: pytest.FixtureRequest
) -> None:
    with zipfile.ZipFile(request.getfixturevalue(form)) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    packed = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    assert packed == package_files(tree)


def test_nothing_of_ours_is_left_out_of_the_package_for_its_kind(tree: Path) -> None:
    """A data file of a kind that pyproject.toml does not list would be lost in a wheel without a word."""
    files = [path for name in FOLDERS if (tree / name).is_dir() for path in (tree / name).rglob("*") if path.is_file()]
    assert {path.suffix for path in files if "__pycache__" not in path.parts} <= DATA | {".py"}
