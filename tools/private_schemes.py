"""For the reference: show `fl_std_dp = private(fl_std)` as the function that it is.

The reference is made from source code, where this is an assignment. Signature and docstring of the function exist only
when the module was imported.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe


class PrivateSchemes(griffe.Extension):
    """Puts a function in the place of each assignment of `private(…)`."""

    def on_module_members(self, *, mod: griffe.Module, **kwargs: Any) -> None:
        for name, member in list(mod.members.items()):
            if isinstance(member, griffe.Attribute) and str(member.value).startswith("private("):
                mod.set_member(name, _as_function(name, _imported(mod.path, name), member))


def _imported(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        raise RuntimeError(f"the reference needs laconic itself ({error}): pip install --editable '.[docs]'") from error


def _as_function(name: str, found: Any, member: griffe.Attribute) -> griffe.Function:
    parameters = [
        griffe.Parameter(
            one.name,
            kind=griffe.ParameterKind(one.kind.description),
            annotation=one.annotation if isinstance(one.annotation, str) else None,
            default=_default(one),
        )
        for one in inspect.signature(found).parameters.values()
    ]
    text = griffe.Docstring(inspect.getdoc(found) or "", lineno=member.lineno)
    shown = griffe.Function(
        name, parameters=griffe.Parameters(*parameters), returns="Scheme", docstring=text, lineno=member.lineno
    )
    text.parent = shown
    return shown


def _default(one: inspect.Parameter) -> str | None:
    if one.kind is one.VAR_KEYWORD:
        return "{}"
    return None if one.default is one.empty else repr(one.default)
