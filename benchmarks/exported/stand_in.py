"""The library timm where torchvision cannot be imported: what it takes of it is not used here."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from importlib.abc import Loader, MetaPathFinder
from types import ModuleType
from typing import Any

__all__ = ["load_timm"]

_MISSING = "torchvision"


class _Any(type):
    """The class of empty classes that have every member, as enumerations do."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Hollow(ModuleType):
    """A module in which every name is an empty class."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # of a package, so that it has submodules

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _Any(name, (), {})


class _Finder(MetaPathFinder, Loader):
    """Finds hollow modules under the name that is missing."""

    def find_spec(
        self, fullname: str, path: object, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname.partition(".")[0] != _MISSING:
            return None
        return importlib.util.spec_from_loader(fullname, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        return _Hollow(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        pass


def load_timm() -> Any:
    """Import timm; hollow modules stand for torchvision while it loads, if that is missing."""
    if importlib.util.find_spec(_MISSING) is None:
        finder = _Finder()
        sys.meta_path.append(finder)
        try:
            import timm
        finally:
            sys.meta_path.remove(finder)
            for name in [name for name in sys.modules if name.partition(".")[0] == _MISSING]:
                del sys.modules[name]
        return timm
    import timm

    return timm
