"""The strings below the fields of a class, which describe settings and fields of messages.

They are read from the source when documentation is generated: a field of a struct has no `__doc__`.
"""

from __future__ import annotations

import ast
import inspect
import sys
from collections.abc import Iterable
from functools import cache
from itertools import pairwise

from msgspec import Struct
from msgspec import inspect as types


@cache
def field_docs(kind: type) -> dict[str, str]:
    """The texts by name, each on one line, with those of the classes that `kind` extends."""
    texts: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for field, below in pairwise(_bodies(base.__module__).get(base.__name__, ())):
            match field, below:
                case (
                    ast.AnnAssign(target=ast.Name(id=name)),
                    ast.Expr(value=ast.Constant(value=str() as text)),
                ):
                    texts[name] = " ".join(text.split())
    return texts


def structs_in(kinds: Iterable[type[Struct]]) -> set[type[Struct]]:
    """These types, and those of their fields, at any depth."""
    structs: set[type[Struct]] = set()
    todo = list(types.multi_type_info(kinds))
    while todo:
        match todo.pop():
            case types.StructType(cls=kind, fields=fields):
                if kind not in structs:
                    structs.add(kind)
                    todo += [field.type for field in fields]
            case (
                types.Metadata(type=inner)
                | types.ListType(item_type=inner)
                | types.DictType(value_type=inner)
            ):
                todo.append(inner)
            case types.UnionType(types=branches):
                todo += branches
    return structs


@cache
def _bodies(module: str) -> dict[str, list[ast.stmt]]:
    """The statements of each class of a module. Empty where the source is missing."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[module]))
    except (OSError, TypeError):
        return {}
    return {node.name: node.body for node in tree.body if isinstance(node, ast.ClassDef)}
