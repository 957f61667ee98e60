"""A function of the course that is imported when it is first used: `import helpers` stays fast, however many there are.

No chapter uses all of the tools, but each has all their names. So `helpers` gives you a stand-in for each function. It
looks like the function: `explain_grad?` and `help(explain_grad)` show the real text and signature.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from importlib import import_module
from typing import Any

from helpers.model.finding import HelperError


class AtFirstUse:
    """Stand for the function `name` of `module`; import it when it is first called or asked about."""

    def __init__(self, module: str, name: str) -> None:
        self.__module__, self.__name__, self.__qualname__ = module, name, name

    @cached_property
    def __wrapped__(self) -> Callable:
        return getattr(import_module(self.__module__), self.__name__)

    @cached_property
    def _signature(self) -> inspect.Signature:
        """The names of the parameters with their defaults, without types."""
        given = inspect.signature(self.__wrapped__).parameters.values()
        return inspect.Signature([parameter.replace(annotation=inspect.Parameter.empty) for parameter in given])

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        try:
            self._signature.bind(*args, **kwargs)
        except TypeError as error:
            raise HelperError(f"{self.__name__} takes {self._signature}: {error}") from None
        return self.__wrapped__(*args, **kwargs)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """As an attribute of a class it binds as its function does; `help` takes what has this for a function."""
        return self if instance is None else self.__wrapped__.__get__(instance, owner)

    def __repr__(self) -> str:
        return f"{self.__name__}{inspect.signature(self.__wrapped__)}"


# A property would stand in the way of the class's own text above.
AtFirstUse.__doc__ = property(lambda self: self.__wrapped__.__doc__)
