"""What every test shares: nothing of the domain, only where the repository is and who is who."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from _pytest.fixtures import SubRequest
from hypothesis import settings

from tests.patience import seconds
from tests.sources import REPOSITORY

# A loaded machine is no defect, and what CI runs is the same every time; the long suite looks for
# what nobody has seen yet (`--hypothesis-profile=fresh`).
settings.register_profile("steady", deadline=None, derandomize=True)
settings.register_profile("fresh", deadline=None, print_blob=True)
settings.load_profile("steady")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """A test's limit, its own or everyone's, is as long as the machine needs at its start.

    Before pytest-timeout, which reads the marker.
    """
    own = item.get_closest_marker("timeout")
    asked = item.config.getoption("timeout")  # 0: none
    everyones = item.config.getini("timeout") if asked is None else asked
    quiet_s = float(everyones if own is None else own.args[0])
    item.add_marker(pytest.mark.timeout(seconds(quiet_s)), append=False)
    return (yield)


@pytest.fixture(autouse=True)
def loop_runner() -> Iterator[asyncio.Runner]:
    """The event loop of one test and of the async fixtures it asks for; made when first needed."""
    runner = asyncio.Runner()
    yield runner
    runner.close()


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[object], request: SubRequest
) -> object | None:
    """Make an ``async def`` fixture on the loop of its test; a generator's second half ends it."""
    make = fixturedef.func
    if not (inspect.iscoroutinefunction(make) or inspect.isasyncgenfunction(make)):
        return None
    runner: asyncio.Runner = request.getfixturevalue("loop_runner")
    made = make(**{name: request.getfixturevalue(name) for name in fixturedef.argnames})
    if inspect.isasyncgen(made):
        value: object = runner.run(anext(made))
        fixturedef.addfinalizer(lambda: runner.run(anext(made, None)))
    else:
        assert inspect.iscoroutine(made)
        value = runner.run(made)
    fixturedef.cached_result = (value, fixturedef.cache_key(request), None)
    return value


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run an ``async def`` test on its event loop; under Hypothesis each example on one of its own."""
    test = pyfuncitem.obj
    if hypothesis := getattr(test, "hypothesis", None):
        inner = hypothesis.inner_test
        if inspect.iscoroutinefunction(inner):
            hypothesis.inner_test = lambda *args, **kwargs: asyncio.run(inner(*args, **kwargs))
    if not inspect.iscoroutinefunction(test):
        return None
    given: dict[str, Any] = pyfuncitem.funcargs
    names = inspect.signature(test).parameters
    given["loop_runner"].run(test(**{name: given[name] for name in names}))
    return True


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the clone under test."""
    return REPOSITORY
