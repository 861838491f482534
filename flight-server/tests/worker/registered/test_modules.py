# SPDX-License-Identifier: Apache-2.0
"""Functions defined in modules, and modules that cannot be imported."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from updraft.v1.control_pb2 import FunctionDescription
from updraft_server.ipc.function_list import MAX_DESCRIPTION_BYTES
from updraft_server.ipc.load import Load
from updraft_server.worker.registered.description import descriptions
from updraft_server.worker.registered.modules import registered_functions

PRICES = """
from updraft import function

@function(version="1")
def price(x: int) -> int:
    return x

first = price

@function(version="2")
def price(x: int) -> int:
    return x
"""

WORDLESS = """
from dataclasses import dataclass

from updraft import function

@dataclass
class Price:
    cents: int

    def __repr__(self):
        raise RuntimeError("no words")

@function
def wordless(x: int, price: Price = Price(1)) -> int:
    return x

@function
def price(x: int) -> int:
    return x
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    for name in set(sys.modules) - before:
        del sys.modules[name]


def described(*modules: str) -> list[FunctionDescription]:
    return list(descriptions(registered_functions(modules)))


def test_a_declaration_that_is_refused_is_found_where_it_stands(directory: Path) -> None:
    (directory / "unhinted.py").write_text("from updraft import function\n\n@function\ndef price(x):\n    return x\n")
    (fault,) = registered_functions(["unhinted"]).module_faults
    assert re.search(r"has no type hint \(.*unhinted\.py, line [34]\)", fault.fault)


def test_functions_are_found_in_the_order_of_their_definition(directory: Path) -> None:
    (directory / "prices.py").write_text(PRICES)
    assert [(each.name, each.version) for each in described("prices")] == [
        ("echo", "1"),
        ("builtin_echo", "1"),
        ("builtin_healthy", "1"),
        ("price", "1"),
        ("price", "2"),
    ]


def test_a_function_that_another_module_imports_is_there_once(directory: Path) -> None:
    (directory / "prices.py").write_text(PRICES)
    (directory / "all_of_them.py").write_text("from prices import first, price\n")
    functions = described("all_of_them", "prices")
    assert [each.version for each in functions if each.name == "price"] == ["1", "2"]
    assert not any(each.fault for each in functions)


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import nowhere_at_all\n", r"No module named 'nowhere_at_all' \(.*broken.py, line 1\)"),
        ("1 +\n", "SyntaxError"),
        ("import sys\nsys.exit(3)\n", "SystemExit: 3"),
        ("raise BaseException('a panic in Rust')\n", "BaseException: a panic in Rust"),
        ("import sys\nsys.modules[__name__] = 7\n", "TypeError: vars"),
        ("from updraft import function\n@function\ndef f(x): return x\n", "DeclarationError: the argument 'x'"),
    ],
)
def test_a_module_that_cannot_be_imported_says_why_and_the_others_are_there(
    directory: Path, source: str, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (directory / "broken.py").write_text(source)
    (directory / "prices.py").write_text(PRICES)
    *functions, broken = described("broken", "prices")
    assert [each.name for each in functions] == ["echo", "builtin_echo", "builtin_healthy", "price", "price"]
    assert (broken.name, broken.version) == ("broken", "")
    assert re.match(f"the module 'broken' of --functions.*{reason}", broken.fault)
    assert broken.fault in capsys.readouterr().err


def test_a_module_that_is_known_to_end_its_process_is_at_fault_and_not_imported(directory: Path) -> None:
    for name in ("broken", "fine"):
        (directory / f"{name}.py").write_text(PRICES)
    functions = registered_functions(["broken", "fine"], broken={Load("broken"): "it ends the process"})
    assert [(fault.module, fault.fault) for fault in functions.module_faults] == [("broken", "it ends the process")]
    assert functions.find("price").function.__module__ == "fine"
    assert "broken" not in sys.modules


def test_a_description_that_is_too_large_is_a_fault(directory: Path) -> None:
    arguments = ", ".join(f"{'x' * 100}_{number}: int" for number in range(250))
    (directory / "wide.py").write_text(f"from updraft import function\n@function\ndef wide({arguments}) -> int: ...\n")
    wide = described("wide")[-1]
    assert (wide.name, str(MAX_DESCRIPTION_BYTES) in wide.fault) == ("wide", True)


def test_a_function_that_cannot_be_described_is_a_fault_and_the_others_are_there(directory: Path) -> None:
    (directory / "wordless.py").write_text(WORDLESS)
    wordless, price = described("wordless")[-2:]
    assert (wordless.name, wordless.fault) == ("wordless", "it cannot be described: RuntimeError: no words")
    assert (price.name, price.fault) == ("price", "")
