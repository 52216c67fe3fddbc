# %% [markdown]
# # A rule of your own
#
# A rule is an equation with conditions. It is verified here before it is used.

# %%
from pathlib import Path

import onnx
import onnx.parser

import eqsat_opt
from eqsat_opt.cli import main

Path("my_rules.py").write_text('''
"""Rules for my models."""

from eqsat_opt.rules import Tensor, is_float, ops, rule


@rule("mine/relu-of-abs")
def relu_of_abs(x: Tensor):
    """An absolute value is not negative, so a relu after it does nothing."""
    return ops.Relu(ops.Abs(x)), ops.Abs(x), is_float(x)
''')

# %% [markdown]
# What does the gate say? `--write` would keep the certificate beside the file.

# %%
main(["rules", "import", "my_rules.py", "--jobs", "1"])

# %% [markdown]
# A wrong rule is refused with the smallest counterexample, as code.

# %%
Path("wrong.py").write_text("""
from eqsat_opt.rules import Tensor, is_float, ops, rule


@rule("mine/relu-does-nothing")
def relu_does_nothing(x: Tensor):
    return ops.Relu(x), x, is_float(x)
""")
assert main(["rules", "import", "wrong.py", "--jobs", "1"]) == 1

# %% [markdown]
# Does it match, and is it chosen? `default` are the rules of the book.

# %%
model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
g (float[8,64] x) => (float[8,64] y) { a = Abs (x) b = Relu (a) y = Exp (b) }
""")
onnx.save(model, "model.onnx")
main(["rules", "try", "my_rules.py", "model.onnx", "--no-search"])

# %% [markdown]
# Of all equal graphs, the one of the least work.

# %%
result = eqsat_opt.optimize(
    model, rules="my_rules.py", objective="flops", race=False, budget=10, threads=1, report=True
)
print(result.report.operators_before, "→", result.report.operators_after)
assert "Relu" not in result.report.operators_after
