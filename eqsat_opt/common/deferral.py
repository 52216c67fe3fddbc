"""A deferred import of sympy, which onnx_ir only needs to compute with dimensions.

This package never lets onnx_ir compute with dimensions, and loading sympy takes longer than loading
all of this package. So if neither module is loaded yet, onnx_ir gets a stand-in that loads sympy
when it is first used. Any other module that imports sympy gets the real one.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # they need no base class, and importlib.abc takes longer to load than all of this
    Loader = MetaPathFinder = object

__all__ = ["defer_sympy"]

_USER, _USED = "onnx_ir", "sympy"


class _Later:
    """A function of sympy that onnx_ir names while it is loaded and calls later, if at all."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __call__(self, *args: object, **options: object) -> object:
        return getattr(importlib.import_module(_USED), self._name)(*args, **options)


class _StandIn(ModuleType):
    """A module that onnx_ir imports in place of sympy."""

    is_loading = True

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.is_loading:
            return _Later(name)
        return getattr(importlib.import_module(_USED), name)


class _Finder(MetaPathFinder):
    """A finder that loads onnx_ir once with the stand-in, and removes itself afterwards."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _USER:
            return None
        sys.meta_path.remove(self)
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None and _USED not in sys.modules:
            spec.loader = _Loader(spec.loader)
        return spec


class _Loader(Loader):
    """A loader that runs a module with the stand-in as sympy, then restores the original loader."""

    def __init__(self, inner: Loader) -> None:
        self._inner = inner

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__.loader = module.__loader__ = self._inner
        stand_in = _StandIn(_USED)
        sys.modules[_USED] = stand_in
        try:
            self._inner.exec_module(module)
        except Exception:  # a version that needs more of sympy than names of functions
            del sys.modules[_USED]
            for name in [one for one in sys.modules if one.startswith(f"{_USER}.")]:
                del sys.modules[name]
            self._inner.exec_module(module)
        finally:
            stand_in.is_loading = False
            if sys.modules.get(_USED) is stand_in:
                del sys.modules[_USED]


def defer_sympy() -> None:
    """Arrange that onnx_ir is loaded without sympy, unless either is loaded already."""
    if _USER not in sys.modules and _USED not in sys.modules:
        sys.meta_path.insert(0, _Finder())
