"""Deferred imports of packages that libraries load, and this package never uses through them.

onnx_ir needs sympy only to compute with dimensions, and the solver needs pandas only for series of
variables. Loading either takes longer than loading all of this package. So if neither the library
nor what it names is loaded yet, the library gets a stand-in that loads the package when it is first
used. Any other module that imports the package gets the real one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # they need no base class, and importlib.abc takes longer to load than all of this
    Loader = MetaPathFinder = object

__all__ = ["defer_imports"]


@dataclass(frozen=True)
class _Later:
    """A name of a package that a library mentions while it is loaded and uses later, if at all."""

    package: str
    name: str

    def __call__(self, *args: object, **options: object) -> object:
        return getattr(importlib.import_module(self.package), self.name)(*args, **options)


class _StandIn(ModuleType):
    """A module that a library imports in place of a package."""

    is_loading = True

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.is_loading:
            return _Later(self.__name__, name)
        return getattr(importlib.import_module(self.__name__), name)


class _Finder(MetaPathFinder):
    """A finder that loads a library once with a stand-in, and removes itself afterwards.

    Attributes:
        library: name of the module that is loaded so.
        package: name of the package that it is loaded without.
    """

    def __init__(self, library: str, package: str) -> None:
        self.library = library
        self.package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self.library:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and self.package not in sys.modules:
            spec.loader = _Loader(spec.loader, self.package)
        return spec


class _Loader(Loader):
    """A loader that runs a module with the stand-in, then restores the original loader."""

    def __init__(self, inner: Loader, package: str) -> None:
        self._inner = inner
        self._package = package

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._inner
        stand_in = _StandIn(self._package)
        sys.modules[self._package] = stand_in
        try:
            self._inner.exec_module(module)
        except Exception:  # a version that needs more of the package than names
            del sys.modules[self._package]
            for name in [one for one in sys.modules if one.startswith(f"{module.__name__}.")]:
                del sys.modules[name]
            self._inner.exec_module(module)
        finally:
            stand_in.is_loading = False
            if sys.modules.get(self._package) is stand_in:
                del sys.modules[self._package]


def defer_imports() -> None:
    """Arrange that libraries are loaded without what they rarely need, unless it is loaded."""
    for library, package in (("onnx_ir", "sympy"), ("ortools.sat.python.cp_model", "pandas")):
        if library not in sys.modules and package not in sys.modules:
            sys.meta_path.insert(0, _Finder(library, package))
