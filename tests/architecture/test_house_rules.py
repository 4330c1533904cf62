"""The rules of the house: that they hold, and that breaking one is found out."""

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from services.common import account_ports, ports, usage_ports

ROOT = Path(__file__).parents[2]
PACKAGES = ("deploy", "gateway", "services", "scheduler", "inference", "tools", "safety")
MOST_LINES = 300
MOST_METHODS = 5

# For each contract: a file, and a line that it must not hold.
BREACHES = [
    ("1. ", "safety/policy.py", "import services.retrieval.embedder"),
    ("1. ", "services/router/catalog.py", "from services.accounts import service"),
    ("1. ", "inference/supervisor.py", "import gateway.app"),
    ("1. ", "services/chat/turn.py", "from gateway.edge import Edge"),
    ("2. ", "gateway/hot.py", "from inference.engines.simulated import SimulatedEngine"),
    ("2. ", "services/chat/generation.py", "import services.router.catalog"),
    ("2. ", "gateway/limiter.py", "from services.ledger.prices import PriceTable"),
    ("3a. ", "gateway/hot.py", "import xllamacpp"),
    ("3a. ", "services/chat/generation.py", "import torch"),
    ("3b. ", "gateway/hot.py", "from sqlalchemy import select"),
    ("3b. ", "services/conversations/service.py", "import sqlalchemy"),
    ("3b. ", "services/accounts/cache.py", "import sqlalchemy"),
    ("3b. ", "services/ledger/writer.py", "import sqlalchemy"),
    ("3c. ", "safety/policy.py", "import onnxruntime"),
    ("3c. ", "inference/supervisor.py", "from tokenizers import Tokenizer"),
    ("4. ", "services/common/http.py", "import services.router.catalog"),
    ("4. ", "services/common/ports.py", "import safety.policy"),
]


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "node_modules" not in path.parts:
                yield path


def lint(tree: Path) -> tuple[int, str]:
    """lint-imports on a tree: its exit code, and what it says in one line, since it wraps the names of contracts."""
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", ".importlinter"]
    done = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, " ".join((done.stdout + done.stderr).split())


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of our code, to break."""
    copy = tmp_path_factory.mktemp("house")
    for path in sources():
        target = copy / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target)
    shutil.copy(ROOT / ".importlinter", copy)
    return copy


def test_the_contracts_hold(tree: Path) -> None:
    code, said = lint(tree)
    assert code == 0, said
    names = re.findall(r"^name = (.*)$", (ROOT / ".importlinter").read_text(), re.M)
    assert len(names) >= 6
    assert all(f"{name} KEPT" in said for name in names), said


def test_every_contract_has_a_breach_that_tests_it() -> None:
    names = re.findall(r"^name = (\S+ )", (ROOT / ".importlinter").read_text(), re.M)
    assert set(names) == {number for number, _, _ in BREACHES}


@pytest.mark.parametrize(("contract", "file", "line"), BREACHES, ids=[f"{c}{f}: {line}" for c, f, line in BREACHES])
def test_one_forbidden_import_breaks_its_contract(tree: Path, contract: str, file: str, line: str) -> None:
    path = tree / file
    before = path.read_text()
    path.write_text(f"{before}\n{line}\n")
    try:
        code, said = lint(tree)
    finally:
        path.write_text(before)
    assert code == 1, said
    name = next(
        n for n in re.findall(r"^name = (.*)$", (tree / ".importlinter").read_text(), re.M) if n.startswith(contract)
    )
    assert f"{name} BROKEN" in said


def protocols() -> list[type]:
    return [
        member
        for module in (ports, account_ports, usage_ports)
        for _, member in inspect.getmembers(module, inspect.isclass)
        if getattr(member, "_is_protocol", False) and member.__module__ == module.__name__
    ]


def test_there_are_ports() -> None:
    assert {
        "Engine",
        "Embedder",
        "Router",
        "Screen",
        "Keys",
        "Sessions",
        "SignIn",
        "Limiter",
        "Journal",
        "Ledger",
        "Conversations",
        "Messages",
        "TurnLog",
    } <= {p.__name__ for p in protocols()}


@pytest.mark.parametrize("port", protocols(), ids=lambda port: port.__name__)
def test_a_port_is_small_and_speaks_in_messages(port: type) -> None:
    methods = {name: m for name, m in vars(port).items() if inspect.isfunction(m) and not name.startswith("_")}
    assert 1 <= len(methods) <= MOST_METHODS
    for name, method in methods.items():
        parameters = list(inspect.signature(method).parameters.values())[1:]
        assert all(p.annotation is not inspect.Parameter.empty for p in parameters), name
        assert all(p.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for p in parameters), name


def test_only_stores_know_sql() -> None:
    """The linter's contract names modules; this holds for those that nobody has named."""
    allowed = re.compile(r"services/(\w+/(\w+_)?store|\w+/tables|\w+/migrations/.*|common/sql)\.py")
    importing = re.compile(r"^\s*(?:from|import) (?:sqlalchemy|alembic)\b", re.MULTILINE)
    found = [str(path.relative_to(ROOT)) for path in sources() if importing.search(path.read_text())]
    assert [name for name in found if not allowed.fullmatch(name)] == []


def test_no_file_is_longer_than_a_reader_bears() -> None:
    """Lines that say something; blank ones are free."""
    lengths = {
        str(path.relative_to(ROOT)): sum(bool(line.strip()) for line in path.read_text().splitlines())
        for path in sources()
    }
    assert {name: length for name, length in lengths.items() if length > MOST_LINES} == {}


def test_modules_hold_no_mutable_globals_of_their_own() -> None:
    """No service locator, no singletons: what is assigned to at run time through `global` is only tracing's switch."""
    found = {
        (str(path.relative_to(ROOT)), name)
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Global)
        for name in node.names
    }
    assert found == {("services/common/telemetry.py", "_tracer")}


def test_the_command_exists_and_says_what_it_can_do() -> None:
    (script,) = entry_points(group="console_scripts", name="antiphon")
    assert script.value == "deploy.cli:main"
    command = [str(Path(sys.executable).with_name("antiphon")), "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    assert all(name in done.stdout for name in ("serve", "models", "keys"))


def test_the_distribution_can_never_be_uploaded_and_packages_every_folder() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "Private :: Do Not Upload" in project["project"]["classifiers"]
    packaged = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert {p for p in PACKAGES if (ROOT / p / "__init__.py").exists()} <= set(packaged) <= set(PACKAGES)


@pytest.mark.parametrize("path", sorted((ROOT / "requirements").glob("*.txt")), ids=lambda p: p.name)
def test_requirements_are_locked_with_hashes_and_name_no_address(path: Path) -> None:
    text = path.read_text()
    assert "://" not in text
    assert "--index-url" not in text
    assert "--find-links" not in text
    logical = [
        line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    assert len(logical) > 20
    for line in logical:
        assert re.match(r"[a-z0-9._-]+(\[[a-z,_-]+\])?==\S+", line), line
        assert "--hash=sha256:" in line, line


def test_no_lock_file_holds_download_addresses() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    assert not [
        name for name in tracked if Path(name).name in ("uv.lock", "poetry.lock", "yarn.lock", "pnpm-lock.yaml")
    ]
    locks = [ROOT / name for name in tracked if Path(name).name == "package-lock.json"]
    assert len(locks) >= 2
    for lock in locks:
        packages = json.loads(lock.read_text())["packages"]
        assert [name for name, entry in packages.items() if "resolved" in entry] == []
        assert all("integrity" in entry for name, entry in packages.items() if name), lock
