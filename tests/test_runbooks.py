"""Every block of the runbooks is run by a test that walks its runbook, and needs only what the chapter says that it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from tests.integration.runbooks import Runbook, chapter, read_runbooks
from tests.sources import Source, sources_of_tests

STEPS = {"do", "begin", "save"}
"""Methods of a walk that take a step."""
LANGUAGES = {"sh", "toml"}
TESTED_ELSEWHERE = {"logs set", "logs show"}
"""Commands that the text names beside the work: ``tests/integration/test_log_commands.py``."""
COMMAND = re.compile(r"\bbookkeeper ([a-z]+(?: [a-z-]+)?)")


def steps_walked(sources: Iterable[Source]) -> set[tuple[str, str]]:
    """Title and step of every step that is taken in a test, or in a fixture, which begins one walk."""
    found = set()
    for source in sources:
        for function in ast.walk(source.tree):
            if isinstance(function, ast.FunctionDef) and _is_run(function):
                found |= set(_steps_of(function))
    return found


def _is_run(function: ast.FunctionDef) -> bool:
    decorators = map(ast.unparse, function.decorator_list)
    return function.name.startswith("test_") or "pytest.fixture" in decorators


def _steps_of(function: ast.FunctionDef) -> Iterator[tuple[str, str]]:
    titles, names = [], []
    for call in (node for node in ast.walk(function) if isinstance(node, ast.Call)):
        match call:
            case ast.Call(func=ast.Name(id="Walk"), args=[ast.Constant(value=str(title)), *_]):
                titles.append(title)
            case ast.Call(
                func=ast.Attribute(attr=method), args=[ast.Constant(value=str(name)), *_]
            ) if method in STEPS:
                names.append(name)
    if titles:
        (title,) = titles  # a second walk in one function could not be told apart
        yield from ((title, name) for name in names)


def steps_not_walked(
    runbooks: Iterable[Runbook], walked: set[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Steps of the document that no test takes."""
    written = [(each.title, step.name) for each in runbooks for step in each.steps]
    return [each for each in written if each not in walked]


def walks() -> list[Source]:
    return [each for each in sources_of_tests() if ".test_runbooks" in each.name]


def test_every_block_of_the_runbooks_is_run_by_a_test() -> None:
    runbooks = read_runbooks(chapter())

    assert len(runbooks) >= 10
    assert all(each.steps for each in runbooks.values())
    assert steps_not_walked(runbooks.values(), steps_walked(walks())) == []


def test_a_block_that_is_new_is_noticed() -> None:
    (runbook,) = read_runbooks(
        "### A\n```sh look\ntrue\n```\nprose\n```sh new exit=1\nfalse\n```\n"
    ).values()

    assert [(step.name, step.exit_code) for step in runbook.steps] == [("look", 0), ("new", 1)]
    assert runbook.prose == "\n\nprose\n\n"
    assert steps_not_walked([runbook], {("A", "look")}) == [("A", "new")]


def test_a_walk_is_found_where_it_is_written() -> None:
    text = """
def test_it():
    with Walk("A", uri, path) as walk:
        walk.do("look", x=1)
        walk.begin("start")
        other.see("no step")
def helper():
    walk.do("elsewhere")
"""

    assert steps_walked([Source("m", "m.py", text)]) == {("A", "look"), ("A", "start")}


def test_every_block_has_a_name_of_its_own_and_needs_what_the_table_lists() -> None:
    text = chapter()
    listed = set(re.findall(r"`([A-Z][A-Z_]+)`", text.partition("\n### ")[0]))
    for runbook in read_runbooks(text).values():
        names = [step.name for step in runbook.steps]
        assert "" not in names, runbook.title
        assert len(set(names)) == len(names), runbook.title
        for step in runbook.steps:
            assert step.language in LANGUAGES
            assert step.variables <= listed, (runbook.title, step.name)


def test_every_runbook_says_what_to_check_and_when_it_is_done() -> None:
    for runbook in read_runbooks(chapter()).values():
        assert "*Done when*" in runbook.prose, runbook.title
        assert "done" in [step.name for step in runbook.steps], runbook.title


def test_a_command_that_the_text_tells_to_type_is_in_a_block_of_some_runbook() -> None:
    runbooks = read_runbooks(chapter()).values()
    run = {
        command
        for each in runbooks
        for step in each.steps
        for command in COMMAND.findall(step.text)
    }
    told = {
        command
        for each in runbooks
        for quoted in re.findall(r"`([^`\n]+)`", each.prose)
        for command in COMMAND.findall(quoted)
    }

    assert told
    assert told - run <= TESTED_ELSEWHERE
