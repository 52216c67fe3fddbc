"""The one part that is compiled: kernels for onnxruntime, where there is a compiler for them.

All else is in pyproject.toml. Without a compiler the installation succeeds and does without.
"""

import sys
from pathlib import Path

from setuptools import Extension, __version__, setup

if int(__version__.partition(".")[0]) < 77:  # cannot read pyproject.toml; pip brings one that can
    sys.exit(f"setuptools {__version__} is too old; run `pip install -e .` instead of setup.py")

SOURCES = Path("eqsat_opt/runtime/backends/native/src")

# No -ffast-math: it makes the host process flush denormals to zero, and breaks exponentials.
FLAGS = [
    "-std=c++17", "-O3", "-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math",
    "-fvisibility=hidden", "-Wno-psabi", "-g0",
]  # fmt: skip

setup(
    ext_modules=[
        Extension(
            "eqsat_opt.runtime.backends.native._kernels",
            sources=sorted(map(str, SOURCES.glob("*.cpp"))),
            depends=sorted(map(str, SOURCES.glob("*.h"))),
            extra_compile_args=FLAGS,
            language="c++",
            optional=True,
        )
    ]
    if sys.platform != "win32"
    else []
)
