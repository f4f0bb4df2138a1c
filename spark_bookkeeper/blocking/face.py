"""Face: what the classes of this package share, each the face of an asyncio class for other threads.

A face has the methods of the asyncio class, by their names and with their parameters, types and
documentation, all of which is written in the asyncio class only: :func:`blocking` makes a method that
runs the coroutine on the event loop and waits for it; a method that needs more than that is written
out, and gets the documentation unless it has its own.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, get_type_hints, overload

from spark_bookkeeper.blocking.loop_thread import LoopThread

A = TypeVar("A")
F = TypeVar("F", bound="Face[Any]")
M = TypeVar("M")
T = TypeVar("T")
P = ParamSpec("P")


class Face(Generic[A]):
    """Offers an asyncio object of class ``A`` to threads without an event loop."""

    def __init__(self, thread: LoopThread, behind: A) -> None:
        self._thread = thread
        self._aio = behind

    def __init_subclass__(cls) -> None:
        """Give each public member without documentation that of the asyncio class."""
        super().__init_subclass__()
        if Face not in cls.__bases__:
            return
        (asyncio_class,) = get_args(vars(cls)["__orig_bases__"][0])
        for name, member in vars(cls).items():
            if not (name.startswith("_") or member.__doc__):
                member.__doc__ = getattr(asyncio_class, name).__doc__

    def _run(self, act: Callable[[A], Coroutine[Any, Any, T]]) -> T:
        """Run ``act`` of the asyncio object on the event loop; blocks until it is done."""
        return self._thread.run(act(self._aio))


@overload
def blocking(
    method: Callable[Concatenate[A, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Face[A], P], T]:
    """For a coroutine method that returns a value."""


@overload
def blocking(
    method: Callable[Concatenate[Any, P], Coroutine[Any, Any, M]], face_of: Callable[[F, M], T]
) -> Callable[Concatenate[F, P], T]:
    """For a coroutine method that returns an asyncio object: the caller gets its face."""


def blocking(
    method: Callable[..., Coroutine[Any, Any, Any]], face_of: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    """The method of a face that runs the coroutine method of its asyncio class and waits.

    ``face_of(self, made)`` makes what the caller gets of what the coroutine returned, where that is
    an asyncio object itself. Blocks for as long as the coroutine runs; an interrupted caller leaves
    it running.
    """

    @wraps(method)
    def call(self: Face[Any], /, *args: Any, **kwargs: Any) -> Any:
        made = self._run(lambda behind: method(behind, *args, **kwargs))
        return made if face_of is None else face_of(self, made)

    if face_of is not None:
        returned = get_type_hints(face_of)["return"]
        call.__annotations__ = {**method.__annotations__, "return": returned}
    return call
