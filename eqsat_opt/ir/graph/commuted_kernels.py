"""A common key for kernels that differ only in the order of operands, and so take the same time."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b

from eqsat_opt.ir.graph.kernel import Kernel, Step
from eqsat_opt.ir.ops import get_op
from eqsat_opt.ir.values.forms import PLAIN, Form

__all__ = ["commuted_key"]


@lru_cache(maxsize=1 << 14)
def commuted_key(
    kernel: Kernel, reads: tuple[Form, ...], writes: tuple[Form, ...]
) -> tuple[str, str]:
    """Return the signature and the forms of a kernel whose commutative operators are put in order.

    Two operands that look alike but are also read elsewhere may come in either order; such kernels
    have several keys.

    Args:
        kernel: the kernel, with operands in the order in which an extraction found them, of any
            forms.
        reads: the forms of its operands.
        writes: the forms of its results.
    """
    count = len(kernel.operands)
    looks = [
        f"{one.type} {one.const} {one.value} {form}"
        for one, form in zip(kernel.operands, reads, strict=True)
    ]
    read: list[tuple[int, ...]] = []
    for step in kernel.steps:
        several = step.operands
        if get_op(step.op).commutative:
            several = tuple(sorted(several, key=looks.__getitem__))
        read.append(several)
        text = f"{step.op} {step.attrs} {[looks[i] for i in several]}"
        looks.append(blake2b(text.encode(), digest_size=16).hexdigest())
    order = _order(kernel, read)
    leaves = [i for i in order if i < count]
    inner = [i for i in order if i >= count]
    number = {old: new for new, old in enumerate((*leaves, *inner))}
    steps = []
    for i in inner:
        one = kernel.steps[i - count]
        steps.append(Step(one.op, one.attrs, tuple(number[j] for j in read[i - count])))
    outputs = tuple(number[i] for i in kernel.outputs)
    operands = tuple(replace(kernel.operands[i], form=PLAIN) for i in leaves)
    forms = f"{' '.join(str(reads[i]) for i in leaves)} > {' '.join(map(str, writes))}"
    return Kernel(operands, tuple(steps), outputs).signature, forms


def _order(kernel: Kernel, read: list[tuple[int, ...]]) -> list[int]:
    """Return the operands and steps that the outputs need, each after those that it reads."""
    count, done = len(kernel.operands), dict[int, None]()
    for output in kernel.outputs:
        stack = [output]
        while stack:
            value = stack[-1]
            missing = [i for i in (read[value - count] if value >= count else ()) if i not in done]
            if missing:
                stack.append(missing[0])
            else:
                done.setdefault(stack.pop())
    return list(done)
