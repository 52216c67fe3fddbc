# %% [markdown]
# # A model
#
# A chain of products in a bad order, made faster. Any path to an ONNX file may stand for `model`.

# %%
import numpy as np
import onnx
import onnx.parser

import eqsat_opt

model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
attention (float[256,16] q, float[16,256] k, float[256,16] v) => (float[256,16] y) {
    scores = MatMul (q, k)
    y = MatMul (scores, v)
}""")

# %% [markdown]
# What is in it, and what could gain? Nothing is run for this.

# %%
eqsat_opt.inspect_model(model)

# %% [markdown]
# The search: all equal graphs at once, the cheapest by measured prices, compared with the original
# and raced against it. The result is the original where nothing beats it.

# %%
result = eqsat_opt.optimize(model, budget=8, threads=1, report=True)
result

# %% [markdown]
# (QKᵀ)V became Q(KᵀV), by associativity. The report has all numbers, as values and as JSON.

# %%
print(result.report)
print(result.report.rules)

# %% [markdown]
# The result runs in any onnxruntime; `session` also follows what its metadata advise.

# %%
session = eqsat_opt.session(result.model)
draw = np.random.default_rng(0)
feeds = {
    "q": draw.standard_normal((256, 16), np.float32),
    "k": draw.standard_normal((16, 256), np.float32),
    "v": draw.standard_normal((256, 16), np.float32),
}
(y,) = session.run(None, feeds)
expected = feeds["q"] @ feeds["k"] @ feeds["v"]
print(f"largest difference {np.abs(y - expected).max():.1e}, of {np.abs(expected).max():.1f}")

# %% [markdown]
# Is it still the same model, and which operators are new?

# %%
eqsat_opt.compare_graphs(model, result.model)
