# %% [markdown]
# # A decoder in low precision, and under a limit
#
# A decoder makes one word per run, with rows of one word and large weights: it waits for memory.
# Fewer bits are fewer bytes. What that costs is measured on data.

# %%
import numpy as np
import onnx
import onnx.parser
from onnx import numpy_helper

import eqsat_opt

draw = np.random.default_rng(0)
model = onnx.parser.parse_model("""
<ir_version: 9, opset_import: ["" : 18]>
step (float[1,128] word) => (float[1,64] logits) {
    inner = MatMul (word, up)
    active = Relu (inner)
    outer = MatMul (active, down)
    state = Add (outer, word)
    logits = MatMul (state, head)
}""")
for name, shape in (("up", (128, 256)), ("down", (256, 128)), ("head", (128, 64))):
    array = draw.standard_normal(shape, np.float32) / np.sqrt(np.float32(shape[0]))
    model.graph.initializer.append(numpy_helper.from_array(array, name))

# %% [markdown]
# Samples in one file: arrays by the names of inputs, with an axis of samples in front. Some choose,
# the rest are held back and decide whether the result is accepted.

# %%
np.savez("samples.npz", word=draw.standard_normal((8, 1, 128), np.float32))
result = eqsat_opt.optimize(
    model,
    numerics="approximate",
    max_error=0.02,
    calibration="samples.npz",
    budget=10,
    threads=1,
    report=True,
)
found = result.report.approximated
print(found.text)
assert found.error is None or found.error <= 0.02

# %% [markdown]
# Limits hold for every graph that is considered. Here no more bytes of weights than the model has,
# the least work of all, and every bit as onnxruntime computes it now.

# %%
limited = eqsat_opt.optimize(
    model,
    objective="flops",
    limits=["weight_bytes<=300000"],
    numerics="bitexact",
    budget=5,
    threads=1,
    report=True,
)
print(limited.report)
